#include "run/model/text_codec.hpp"

#include <catch2/catch.hpp>

#include "data/prepare/prepare.hpp"

namespace train::run::text_codec_test {
namespace {

TEST_CASE("text_codec: every byte is the token of its value", "[run][text_codec]") {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    text.push_back(static_cast<char>(byte));
  }
  const std::vector<std::int32_t> tokens = encode_bytes(text);
  REQUIRE(tokens.size() == 256);
  for (std::int32_t byte = 0; byte < 256; ++byte) {
    REQUIRE(tokens[static_cast<std::size_t>(byte)] == byte);
  }
}

TEST_CASE("text_codec: no text begins a document", "[run][text_codec]") {
  REQUIRE(encode_bytes("") == std::vector{static_cast<std::int32_t>(data::kBytesEndOfText)});
}

TEST_CASE("text_codec: what would steer the terminal is shown as a question mark",
          "[run][text_codec]") {
  CHECK(show_byte('a') == "a");
  CHECK(show_byte('\t') == "\t");
  CHECK(show_byte('\n') == "\n");
  CHECK(show_byte(0x1b) == "?");
  CHECK(show_byte(127) == "?");
  CHECK(show_byte(0xe4) == "\xe4");  // part of a letter in UTF-8
  CHECK(show_byte(static_cast<std::int32_t>(data::kBytesEndOfText)) == "\n");
}

}  // namespace
}  // namespace train::run::text_codec_test
