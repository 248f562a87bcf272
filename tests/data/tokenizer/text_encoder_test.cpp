#include "data/tokenizer/text_encoder.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "storage/text/utf8.hpp"
#include "tests/data/tokenizer/tokenizer_fixture.hpp"
#include "tests/support/processes/contained.hpp"

using namespace train;
using namespace train::data;

namespace {

std::string random_text(std::mt19937& random, std::size_t pieces) {
  static const std::vector<std::string> parts = {"the",    " the", " ship", "ping", " ",  "  ",
                                                 "\n",     "12",   "'s",    "é",    "船", "<s>",
                                                 "\u2581", "\xff", "A",     "b"};
  std::string text;
  for (std::size_t i = 0; i < pieces; ++i) {
    text += parts[random() % parts.size()];
  }
  return text;
}

/// A merge of tokenizers that grows as words do: a, aa, aaaa, ...
nlohmann::json doubling_file() {
  nlohmann::json file = {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}}}};
  std::string word = "a";
  for (std::uint32_t id = 2; id < 12; ++id) {
    file["model"]["merges"].push_back({word, word});
    word += word;
    file["model"]["vocab"][word] = id;
  }
  return file;
}

/// Whether the text has such ids. It is encoded in a process that is killed after the hang limit:
/// what takes quadratic time takes hours.
template <class Check>
bool encodes_in_time(const Tokenizer& tokenizer, const std::string& text, const Check& check) {
  const auto result = test::run_contained([&] {
    test::Ids ids;
    const bool encoded = TextEncoder(tokenizer).encode(text, false, ids).ok();
    return std::string(encoded && check(ids) ? "as they should be" : "other ids");
  });
  CHECK(result.signal == 0);
  return result.text == "as they should be";
}

}  // namespace

TEST_CASE("text encoder: ids depend neither on threads nor on words seen before",
          "[data][tokenizer][TK-2]") {
  std::mt19937 random(7);
  std::vector<std::string> texts;
  for (int i = 0; i < 60; ++i) {
    texts.push_back(random_text(random, 1 + random() % 200));
  }
  const std::vector<std::string_view> documents(texts.begin(), texts.end());
  for (const auto& fixture : test::tokenizer_fixtures()) {
    INFO(fixture.at("name"));
    const Tokenizer tokenizer = test::tokenizer_of(fixture.at("file"));
    std::vector<test::Ids> alone;
    for (const std::string& text : texts) {
      alone.push_back(test::encoded(tokenizer, text, true));
    }
    for (const unsigned threads : {0U, 1U, 3U}) {
      const auto together = DocumentEncoder(tokenizer, threads).encode(documents, true);
      REQUIRE(together.ok());
      CHECK(together->ids == alone);
      CHECK(together->replaced_count > 0);
    }
  }
}

TEST_CASE("text encoder: words that share a place of the cache do not disturb each other",
          "[data][tokenizer][TK-2]") {
  const Tokenizer tokenizer = test::tokenizer_of(test::fixture_file("gpt2"));
  TextEncoder encoder(tokenizer);
  test::Ids remembered;
  test::Ids fresh;
  // More words than the cache has places, twice.
  for (int round = 0; round < 2; ++round) {
    std::string text;
    for (int word = 0; word < 80'000; ++word) {
      text += " w" + std::to_string(word * 7919);
    }
    remembered.clear();
    REQUIRE(encoder.encode(text, false, remembered).ok());
    fresh = test::encoded(tokenizer, text);
    CHECK(remembered == fresh);
  }
}

TEST_CASE("text encoder: what is no UTF-8 becomes U+FFFD, once for each break, and is counted",
          "[data][tokenizer]") {
  const std::vector<std::pair<std::string, std::uint64_t>> broken = {{"a\xff"
                                                                      "b",
                                                                      1},
                                                                     {"\xc3", 1},
                                                                     {"\xe2\x96", 1},
                                                                     {"\xf0\x9f\x98", 1},
                                                                     {"\xed\xa0\x80", 3},
                                                                     {"\xc0\xaf", 2},
                                                                     {"\xf4\x90\x80\x80", 4},
                                                                     {"\xe2\x96\xe2\x96\x81", 1},
                                                                     {"\x80\x80", 2}};
  const Tokenizer tokenizer = test::tokenizer_of(test::fixture_file("gpt2"));
  for (const auto& [text, breaks] : broken) {
    std::uint64_t replaced = 0;
    const std::string repaired = storage::repaired_utf8(text, replaced);
    CHECK(replaced == breaks);
    CHECK(storage::valid_prefix(repaired) == repaired.size());
    TextEncoder encoder(tokenizer);
    test::Ids ids;
    REQUIRE(encoder.encode(text, false, ids).ok());
    CHECK(encoder.replaced_count() == breaks);
    CHECK(ids == test::encoded(tokenizer, repaired));
    CHECK(tokenizer.decode(ids, false) == repaired);
  }
}

TEST_CASE("text encoder: long words take few more steps for each byte than short ones",
          "[data][tokenizer][TK-3][exhaustive]") {
  const Tokenizer tokenizer = test::tokenizer_of(doubling_file());
  const std::size_t bytes = std::size_t{1} << 20U;
  CHECK(encodes_in_time(tokenizer, std::string(bytes, 'a'), [&](const test::Ids& ids) {
    return ids == test::Ids(bytes / 1024, 11);
  }));
  CHECK(encodes_in_time(tokenizer, std::string(bytes, 'a') + "b", [&](const test::Ids& ids) {
    return ids.size() == bytes / 1024 + 1;
  }));
}

TEST_CASE("text encoder: runs of anything cost known patterns linear time",
          "[data][tokenizer][TK-3][exhaustive]") {
  for (const char* name : {"gpt2", "llama3", "o200k", "tekken", "deepseek", "llama2", "mistral"}) {
    INFO(name);
    const Tokenizer tokenizer = test::tokenizer_of(test::fixture_file(name));
    for (const std::string& unit :
         {std::string(" "), std::string("\n "), std::string("A"), std::string("'"),
          std::string("\u02b0A"), std::string("\u0301"), std::string("<"), std::string("\u2581")}) {
      std::string text;
      while (text.size() < 500'000) {  // Quadratic time passes the limit of a hang.
        text += unit;
      }
      CHECK(encodes_in_time(tokenizer, text, [](const test::Ids& ids) { return !ids.empty(); }));
    }
  }
}

TEST_CASE("text encoder: an expression that explodes is an error, not a hang",
          "[data][tokenizer]") {
  nlohmann::json file = test::fixture_file("gpt2");
  file["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(a+a+)+b"}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const Tokenizer tokenizer = test::tokenizer_of(file);
  const std::string text = std::string(5000, 'a') + "cb";
  const auto ids = tokenizer.encode(text, false);
  REQUIRE(!ids.ok());
  CHECK(ids.error().kind == ErrorKind::user);
  CHECK(ids.error().message.find("takes too long") != std::string::npos);
  const std::vector<std::string_view> documents = {"a", text, text};
  CHECK(!DocumentEncoder(tokenizer, 2).encode(documents, false).ok());
}
