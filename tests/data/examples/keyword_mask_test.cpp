#include "data/examples/keyword_mask.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/small_tokenizer.hpp"

namespace train::data {
namespace {

/// Of a text: its tokens, those that are masked in brackets.
std::string masked(const std::vector<std::string>& expressions, const std::string& text) {
  const test::TempDirectory home;
  test::write_bytes(home / "tokenizer.json", test::small_tokenizer_json());
  const auto tokenizer = Tokenizer::load(home / "tokenizer.json");
  REQUIRE(tokenizer.ok());
  const auto encoded = tokenizer->encode_with_spans(text, {});
  REQUIRE(encoded.ok());
  const auto mask = KeywordMask::compile(expressions);
  REQUIRE(mask.ok());
  const auto found = mask->of(text, encoded->spans);
  REQUIRE(found.ok());
  std::string shown;
  for (std::size_t i = 0; i < encoded->ids.size(); ++i) {
    const storage::TokenSpan span = encoded->spans[i];
    const std::string token = text.substr(span.first, span.last - span.first);
    shown += (*found)[i] ? "[" + token + "]" : token;
  }
  return shown;
}

}  // namespace

TEST_CASE("keyword mask: a token is masked if a match has any of its bytes",
          "[data][keyword_mask]") {
  CHECK(masked({"the"}, "a thea") == "a[ the]a");  // a token that begins before the match
  CHECK(masked({"hea"}, "a thea") == "a[ the][a]");
  CHECK(masked({"x"}, "a thea") == "a thea");
}

TEST_CASE("keyword mask: expressions, several of them, in any case", "[data][keyword_mask]") {
  CHECK(masked({"V[iI]RUS", "q+"}, "a Virus qq z") == "a [V][i][r][u][s] [q][q] z");
  CHECK(masked({"b|c"}, "abcd") == "a[b][c]d");  // an alternative is of the whole expression
}

TEST_CASE("keyword mask: mistakes name the expression", "[data][keyword_mask]") {
  for (const auto& [expressions, part] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "no keywords"}, {{""}, "empty"}, {{"good", "(bad"}, "keyword \"(bad\": "}}) {
    const auto mask = KeywordMask::compile(expressions);
    REQUIRE_FALSE(mask.ok());
    INFO(mask.error().message);
    CHECK(mask.error().kind == ErrorKind::user);
    CHECK(mask.error().message.find(part) != std::string::npos);
  }
}

}  // namespace train::data
