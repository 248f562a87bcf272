// Small tokenizers of every kind against the reference
// (tests/reference/texts/make_tokenizer_fixtures.py).
#include "data/tokenizer/tokenizer.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/data/tokenizer/tokenizer_fixture.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/small_tokenizer.hpp"

namespace train::data {
namespace {

using train::test::TempDirectory;
using train::test::write_bytes;
using Json = nlohmann::json;
using Ids = std::vector<std::uint32_t>;

const Json& tokenizer_fixture() {
  static const Json fixture = [] {
    std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) +
                       "/tests/reference/fixtures/tokenizers.json");
    return Json::parse(file);
  }();
  return fixture;
}

Tokenizer tokenizer_from(const Json& file) {
  const TempDirectory directory;
  write_bytes(directory / "tokenizer.json", file.dump());
  auto loaded = Tokenizer::load(directory.path());
  if (!loaded.ok()) {
    FAIL(loaded.error().message);
  }
  return std::move(loaded).value();
}

Ids ids_of(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text, /*add_special_tokens=*/false);
  REQUIRE(ids.ok());
  return *ids;
}

}  // namespace

TEST_CASE("tokenizer: hostile text costs little more than any other",
          "[data][tokenizer][TK-3][exhaustive]") {
  // What is quadratic in a word takes hours here.
  constexpr std::size_t bytes = 400'000;
  for (const Json& entry : tokenizer_fixture()) {
    CAPTURE(entry.at("name").get<std::string>());
    const Tokenizer tokenizer = tokenizer_from(entry.at("file"));
    for (const std::string piece : {"a", " ", "the", "\xCC\x81", "'", "\n"}) {
      std::string text;
      while (text.size() < bytes) {
        text += piece;
      }
      const auto ids = tokenizer.encode(text, false);
      REQUIRE((ids.ok() || ids.error().message.find("step") != std::string::npos));
    }
  }
}

TEST_CASE("tokenizer: names, sizes and the end of a text", "[data][tokenizer]") {
  const Tokenizer tokenizer = tokenizer_from(Json::parse(test::small_tokenizer_json()));
  CHECK(tokenizer.vocab_size() == 265);
  CHECK(test::id_of(tokenizer, "the") == 257U);
  CHECK_FALSE(test::id_of(tokenizer, "nothing"));
  CHECK(tokenizer.token_text(257) == "the");
  CHECK(tokenizer.token_text(100'000).empty());
  CHECK(tokenizer.is_special(264));
  CHECK_FALSE(tokenizer.is_special(257));
  CHECK(tokenizer.end_of_text() == 264U);
  CHECK(ids_of(tokenizer, "the<|endoftext|>the") == Ids{257, 264, 257});
}

}  // namespace train::data
