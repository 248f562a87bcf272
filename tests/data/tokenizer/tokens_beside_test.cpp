// Tokens that the files beside a tokenizer name, against transformers
// (tests/reference/texts/make_added_token_fixtures.py).
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.hpp"
#include "tests/storage/number_list.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/sentencepiece_fixture.hpp"

namespace train::data::testing::tokens_beside_test {

using nlohmann::json;
using train::test::from_base64;
using train::test::TempDirectory;
using Ids = std::vector<std::uint32_t>;

const json& fixture() {
  static const json read = test::read_fixture("added_tokens.json");
  return read;
}

void write_kind(const TempDirectory& directory, const json& kind) {
  for (const auto& [name, content] : kind.at("files").items()) {
    std::ofstream(directory.path() / name, std::ios::binary) << from_base64(content);
  }
}

/// Documents, or their texts, which keep the order of their members.
void write_beside(const TempDirectory& directory, const json& beside) {
  for (const auto& [name, content] : beside.items()) {
    std::ofstream(directory.path() / name)
        << (content.is_string() ? content.get<std::string>() : content.dump());
  }
}

TEST_CASE("tokens beside: ids, texts and the end of a text are the reference's",
          "[data][tokenizer][TK-1][exhaustive]") {
  for (const auto& [name, kind] : fixture().at("kinds").items()) {
    for (const json& one : kind.at("cases")) {
      CAPTURE(name, one.at("name").get<std::string>());
      const TempDirectory directory;
      write_kind(directory, kind);
      write_beside(directory, one.at("beside"));
      const auto tokenizer = Tokenizer::load(directory.path());
      REQUIRE(tokenizer.ok());
      if (!one.at("end").is_null()) {
        CHECK(tokenizer->end_of_text() == one.at("end").get<std::uint32_t>());
      }
      for (std::size_t i = 0; i < one.at("ids").size(); ++i) {
        const auto text = fixture().at("texts")[i].get<std::string>();
        CAPTURE(text);
        const auto ids = tokenizer->encode(text, {.rendered = true});
        REQUIRE(ids.ok());
        CHECK(*ids == one.at("ids")[i].get<Ids>());
        if (one.contains("decoded")) {
          CHECK(tokenizer->decode(*ids, /*skip_special=*/true) ==
                one.at("decoded")[i].get<std::string>());
        }
      }
    }
  }
}

TEST_CASE("tokens beside: what stands around a text is what the settings name",
          "[data][tokenizer][TK-1]") {
  std::size_t framed = 0;
  for (const auto& [name, kind] : fixture().at("kinds").items()) {
    for (const json& one : kind.at("cases")) {
      const auto variant = one.at("name").get<std::string>();
      if (!variant.starts_with("framed") || name == "one_file") {
        continue;  // Of a tokenizer.json its own post_processor counts.
      }
      CAPTURE(name, variant);
      const TempDirectory directory;
      write_kind(directory, kind);
      write_beside(directory, one.at("beside"));
      const auto tokenizer = Tokenizer::load(directory.path());
      REQUIRE(tokenizer.ok());
      const auto ids = tokenizer->encode("", /*add_special_tokens=*/true);
      REQUIRE(ids.ok());
      Ids expected = one.at("before").get<Ids>();
      const Ids after = one.at("after").get<Ids>();
      expected.insert(expected.end(), after.begin(), after.end());
      CHECK(*ids == expected);
      framed += expected.size();
    }
  }
  CHECK(framed > 0);
}

TEST_CASE("tokens beside: a file that is no JSON object is one line, not as if it were not there",
          "[data][tokenizer]") {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "generation_config.json", "config.json"}) {
    CAPTURE(name);
    const TempDirectory directory;
    write_kind(directory, fixture().at("kinds").at("pieces"));
    std::ofstream(directory.path() / name) << R"({"eos_token": "<|im_end|>",})";
    const auto tokenizer = Tokenizer::load(directory.path());
    REQUIRE_FALSE(tokenizer.ok());
    CHECK(tokenizer.error().kind == ErrorKind::user);
    CHECK_THAT(tokenizer.error().message,
               Catch::Contains(name) && Catch::Contains("not a JSON object"));
  }
}

TEST_CASE("tokens beside: settings that are not read are refused or named", "[data][tokenizer]") {
  const TempDirectory directory;
  write_kind(directory, fixture().at("kinds").at("one_file"));
  write_beside(directory, {{"tokenizer_config.json", {{"split_special_tokens", true}}}});
  const auto split = Tokenizer::load(directory.path());
  REQUIRE_FALSE(split.ok());
  CHECK_THAT(split.error().message, Catch::Contains("split_special_tokens is true"));
  write_beside(directory, {{"tokenizer_config.json", {{"add_prefix_space", true}}}});
  const auto prefixed = Tokenizer::load(directory.path());
  REQUIRE(prefixed.ok());
  REQUIRE(prefixed->notes().size() == 1);
  CHECK_THAT(prefixed->notes().front(), Catch::Contains("add_prefix_space"));
}

TEST_CASE("tokens beside: a space behind special tokens that transformers 5 puts not is named",
          "[data][tokenizer]") {
  const json prepend = {{"type", "Prepend"}, {"prepend", "\u2581"}};
  const json file = {{"added_tokens", {{{"id", 2}, {"content", "</s>"}, {"special", true}}}},
                     {"normalizer", prepend},
                     {"model",
                      {{"type", "BPE"},
                       {"vocab", {{"\u2581", 0}, {"a", 1}, {"</s>", 2}}},
                       {"merges", json::array()}}}};
  const TempDirectory directory;
  const auto notes_with = [&](const json& config) {
    write_beside(directory, {{"tokenizer.json", file}, {"tokenizer_config.json", config}});
    const auto tokenizer = Tokenizer::load(directory.path());
    REQUIRE(tokenizer.ok());
    CHECK(*tokenizer->encode("</s>a", false) == Ids{2, 0, 1});
    return tokenizer->notes().size();
  };
  CHECK(notes_with({{"tokenizer_class", "LlamaTokenizer"}, {"legacy", false}}) == 1);
  CHECK(notes_with({{"tokenizer_class", "LlamaTokenizerFast"}}) == 1);
  CHECK(notes_with({{"tokenizer_class", "LlamaTokenizer"}, {"legacy", true}}) == 0);
  CHECK(notes_with({{"tokenizer_class", "PreTrainedTokenizerFast"}}) == 0);
  write_beside(directory, {{"config.json", {{"model_type", "mistral"}}}});
  CHECK(notes_with({{"tokenizer_class", "LlamaTokenizer"}}) == 0);
}

TEST_CASE("tokens beside: of SentencePiece, special ones are in rendered text alone",
          "[data][tokenizer]") {
  const json& kind = fixture().at("kinds").at("pieces");
  const TempDirectory directory;
  write_kind(directory, kind);
  for (const json& one : kind.at("cases")) {
    if (one.at("name") == "decoder") {
      write_beside(directory, one.at("beside"));
    }
  }
  const auto tokenizer = Tokenizer::load(directory.path());
  REQUIRE(tokenizer.ok());
  const auto has = [&](const std::string& text, const char* token) {
    const auto ids = tokenizer->encode(text, /*add_special_tokens=*/false);
    REQUIRE(ids.ok());
    return std::count(ids->begin(), ids->end(), test::id_of(*tokenizer, token).value()) > 0;
  };
  CHECK_FALSE(has("a <|im_start|> b", "<|im_start|>"));
  CHECK(has("a <x> b", "<x>"));
}

TEST_CASE("tokens beside: what has another id than its place, or none, is one line",
          "[data][tokenizer]") {
  const TempDirectory directory;
  write_kind(directory, fixture().at("kinds").at("pieces"));
  const auto error_of = [&](const json& beside) {
    write_beside(directory, beside);
    const auto tokenizer = Tokenizer::load(directory.path());
    REQUIRE_FALSE(tokenizer.ok());
    CHECK(tokenizer.error().kind == ErrorKind::user);
    CHECK(tokenizer.error().message.find('\n') == std::string::npos);
    return tokenizer.error().message;
  };
  using Catch::Contains;
  CHECK_THAT(error_of({{"added_tokens.json", {{"<x>", 385}}}}),
             Contains("added_tokens.json: \"<x>\" has the id 385, but would be token 380"));
  CHECK_THAT(error_of({{"added_tokens.json", {{"<x>", "y"}}}}),
             Contains("added_tokens.json: \"<x>\" is not a token with an id"));
  const json decoder = {{"added_tokens_decoder", {{"380", {{"special", true}}}}}};
  CHECK_THAT(error_of({{"tokenizer_config.json", decoder}}),
             Contains("tokenizer_config.json: \"added_tokens_decoder.380\" is not a token"));
}

}  // namespace train::data::testing::tokens_beside_test
