#include "data/tokenizer/text_stream.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "tests/data/tokenizer/tokenizer_fixture.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/sentencepiece_fixture.hpp"

namespace train::data::testing::text_stream_test {

using test::Ids;

Tokenizer sentencepiece_tokenizer(const std::string& name) {
  const test::TempDirectory directory;
  const auto path = directory.path() / "tokenizer.model";
  std::ofstream(path, std::ios::binary) << test::sentencepiece_model(name);
  auto tokenizer = Tokenizer::load(path);
  REQUIRE(tokenizer.ok());
  return std::move(tokenizer).value();
}

/// What is shown of `ids` behind the first `prompt` of them.
std::string streamed(const Tokenizer& tokenizer, const Ids& ids, std::size_t prompt) {
  TextStream stream(tokenizer, std::span(ids).first(prompt));
  std::string text;
  for (const std::uint32_t id : std::span(ids).subspan(prompt)) {
    text += stream.add(id);
  }
  return text + stream.finish();
}

/// Decodings are the reference's (TK-1); what is checked is that streaming keeps them.
void check_streams(const Tokenizer& tokenizer, const Ids& ids) {
  const std::string all = tokenizer.decode(ids, /*skip_special=*/true);
  for (const std::size_t prompt : {std::size_t{0}, ids.size() / 3, ids.size() / 2}) {
    CAPTURE(prompt);
    const std::string before =
        tokenizer.decode(std::span(ids).first(prompt), /*skip_special=*/true);
    if (all.starts_with(before)) {  // and no character is cut in two
      CHECK(streamed(tokenizer, ids, prompt) == all.substr(before.size()));
    }
  }
}

TEST_CASE("text stream: texts are those of decoding all tokens, of every SentencePiece model",
          "[data][tokenizer][TK-4][exhaustive]") {
  const auto& fixture = test::sentencepiece_fixture();
  for (const auto& [name, expected] : fixture.at("models").items()) {
    CAPTURE(name);
    const Tokenizer tokenizer = sentencepiece_tokenizer(name);
    for (const auto& ids : expected.at("ids")) {
      check_streams(tokenizer, ids.get<Ids>());
    }
  }
}

TEST_CASE("text stream: texts are those of decoding all tokens, of every tokenizer.json",
          "[data][tokenizer][TK-4][exhaustive]") {
  for (const auto& one : test::tokenizer_fixtures()) {
    CAPTURE(one.at("name").get<std::string>());
    const Tokenizer tokenizer = test::tokenizer_of(one.at("file"));
    Ids all;
    for (const char* text :
         {"The ship left.", "  a  b\n\n   c", "\u8239\U0001f600 \u00e9\n", "x"}) {
      const Ids ids = test::encoded(tokenizer, text);
      check_streams(tokenizer, ids);
      all.insert(all.end(), ids.begin(), ids.end());
    }
    for (int i = 0; i < 4; ++i) {  // longer than what is remembered
      all.insert(all.end(), all.begin(), all.end());
    }
    check_streams(tokenizer, all);
  }
}

TEST_CASE("text stream: a space behind a prompt and blanks behind a long text stay",
          "[data][tokenizer][TK-4]") {
  const Tokenizer tokenizer = sentencepiece_tokenizer("bytes");
  const auto ids = [&](std::string_view text) { return test::encoded(tokenizer, text); };
  const Ids prompt = ids("the ship");
  Ids both = ids("the ship the water");
  CHECK(streamed(tokenizer, both, prompt.size()) == " the water");
  std::string code;
  for (int i = 0; i < 60; ++i) {
    code += "the ship\n    the water\n";
  }
  both = ids(code);
  CHECK(streamed(tokenizer, both, 3) ==
        code.substr(tokenizer.decode(std::span(both).first(3), true).size()));
}

TEST_CASE("text stream: what a later token may change is held back", "[data][tokenizer][TK-4]") {
  const Tokenizer tokenizer = sentencepiece_tokenizer("bytes");
  const Ids ship = test::encoded(tokenizer, "\U0001f600");  // no piece: four bytes
  REQUIRE(ship.size() >= 4);
  TextStream stream(tokenizer, {});
  std::string early;
  for (const std::uint32_t id : ship) {
    early += stream.add(id);
  }
  CHECK(early.find('\xF0') == std::string::npos);  // another byte might make it none
  CHECK(early + stream.finish() == "\U0001f600");
}

}  // namespace train::data::testing::text_stream_test
