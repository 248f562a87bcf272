#include "data/tokenizer/text/character_clusters.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "data/tokenizer/formats/base64.hpp"
#include "tests/data/tokenizer/tokenizer_fixture.hpp"

using namespace train;
using namespace train::data;

TEST_CASE("character clusters: a letter with its accents becomes what its beginning does",
          "[data][tokenizer][TK-1]") {
  const auto file = test::fixture_file("table");
  const auto bytes =
      from_base64(file.at("normalizer").at("precompiled_charsmap").get<std::string>());
  REQUIRE(bytes.has_value());
  const auto map = CharacterMap::parse(*bytes);
  REQUIRE(map.ok());
  // What the reference makes of them.
  const std::pair<std::string, std::string> cases[] = {
      {"e\u0301", "\u00e9"},
      {"A\u0301", "a"},
      {"A\u200d", "a"},
      {"\ufb01\u0301", "fi"},
      {"\u0308\u0301", "\u0344"},
      {"\r\n\n", "  "},
      // 6 bytes and more: each code point for itself.
      {"A\u0301\u0302\u0303", "a\u0301\u0302\u0303"},
      // Signs that belong to the letter behind them.
      {"\u0600e\u0301", "\u0600e\u0301"},
      {"\u0d4ee\u0301", "\u0d4ee\u0301"},
      // Marks of their own, and what nothing joins.
      {"A\u102b", "a\u102b"},
      {"\u200be\u0301", " \u00e9"},
      {"A\u00ad\u0301", "a\u00ad\u0301"},
      // Assigned in Unicode 17.0.
      {"A\U00011b60", "a"},
  };
  for (const auto& [text, expected] : cases) {
    CAPTURE(text);
    std::string out;
    storage::OriginTrace nothing(nullptr);
    map_clusters(*map, text, out, nothing);
    CHECK(out == expected);
  }
}
