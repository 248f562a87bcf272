#include "data/tokenizer/formats/tokenizer_files.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/data/tokenizer/tokenizer_fixture.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::data;
using train::test::TempDirectory;

namespace {

std::string defect_of(const nlohmann::json& file) {
  const auto parts = read_tokenizer_json(file.dump());
  return parts.ok() ? std::string() : parts.error().message;
}

nlohmann::json with(std::string_view section, const nlohmann::json& value) {
  nlohmann::json file = test::fixture_file("gpt2");
  file[std::string(section)] = value;
  return file;
}

nlohmann::json with_model(std::string_view member, const nlohmann::json& value) {
  nlohmann::json file = test::fixture_file("gpt2");
  file["model"][std::string(member)] = value;
  return file;
}

/// A vocabulary of 26 letters and what they are merged to.
nlohmann::json small_file() {
  return {{"model",
           {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 5}}}, {"merges", {"a b"}}}}};
}

nlohmann::json added(std::initializer_list<const char*> contents) {
  nlohmann::json list = nlohmann::json::array();
  for (const char* content : contents) {
    list.push_back({{"id", 77}, {"content", content}, {"special", true}, {"normalized", false}});
  }
  return list;
}

nlohmann::json unigram_file(const char* vocab, int unknown) {
  return {{"model",
           {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", nlohmann::json::parse(vocab)}}}};
}

}  // namespace

TEST_CASE("tokenizer files: a Unigram vocabulary that is there twice is refused",
          "[data][tokenizer]") {
  // JSON has a member twice here, which no document that was parsed can.
  const auto parts = read_tokenizer_json(
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": {"z": 7}, "vocab": [["a", -1.0]]}})");
  REQUIRE_FALSE(parts.ok());
  CHECK(parts.error().message.find("twice") != std::string::npos);
}

TEST_CASE("tokenizer files: what is not supported is refused by its name", "[data][tokenizer]") {
  using nlohmann::json;
  const json text_alone = {
      {"type", "TemplateProcessing"},
      {"single", json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})}};
  const std::vector<std::pair<json, std::string>> cases = {
      {with("normalizer", {{"type", "BertNormalizer"}}), "BertNormalizer"},
      {with("normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Precompiled"}}}}}),
       "precompiled_charsmap"},
      {with("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}), "damaged"},
      {with("pre_tokenizer", {{"type", "UnicodeScripts"}}), "UnicodeScripts"},
      {with("pre_tokenizer", {{"type", "Sequence"}}), "pretokenizers"},
      {with("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "("}}}}), "Regex"},
      {with("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "[a&&b]"}}}}),
       "intersection"},
      {with("pre_tokenizer", {{"type", "Split"}, {"pattern", "x"}}), "needs a pattern"},
      {with("pre_tokenizer",
            {{"type", "Sequence"},
             {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Whitespace"}}}}}),
       "after ByteLevel"},
      {with("post_processor", {{"type", "BertProcessing"}}), "BertProcessing"},
      {with("post_processor", {{"type", "Sequence"}, {"processors", {text_alone, text_alone}}}),
       "two TemplateProcessing"},
      {with("decoder", {{"type", "WordPiece"}}), "WordPiece"},
      {with_model("type", "WordPiece"), "BPE, Unigram"},
      {with_model("type", "Unigram"), "behind a pre_tokenizer of bytes"},
      {with_model("vocab", json::array({json::array({"a", -1.5})})), "type is BPE"},
      {unigram_file(R"([["a", -1.5], ["b", -1.5]])", 2), "unk_id"},
      {unigram_file(R"([["a", -1.5], ["a", -2]])", 0), "twice"},
      {unigram_file(R"([["a"]])", 0), "a text and a score"},
      {unigram_file(R"([["a", -1, 2]])", 0), "two scores"},
      {unigram_file(R"([["a", "b", 2]])", 0), "a text and a score"},
      {unigram_file(R"([["a", null]])", 0), "a text and a score"},
      {unigram_file(R"([1, 2])", 0), "a text and a score"},
      {with_model("dropout", 0.1), "dropout"},
      {with_model("end_of_word_suffix", "</w>"), "end_of_word_suffix"},
      {with_model("continuing_subword_prefix", "##"), "continuing_subword_prefix"},
      {with_model("merges", {"a b c"}), "model.merges"},
      {with_model("merges", json::array({json::array({"a"})})), "model.merges"},
      {with_model("merges", json::array({json::array({"q", "\u0120\u0120q"})})), "lacks"},
      {with_model("vocab", {{"a", 4'000'000'000U}}), "ids end at"},
      {with_model("vocab", {{"a", 1}, {"b", 1}}), "twice"},
      {with_model("vocab", {{"a", "b"}}), "not an id"},
      {json::array(), "no model"},
      {json{{"model", {{"type", "BPE"}, {"unk_token", "?"}, {"vocab", {{"a", 0}}}}}},
       "unknown token"},
  };
  for (const auto& [file, part] : cases) {
    const std::string defect = defect_of(file);
    INFO(part);
    CHECK(defect.find(part == "Regex" ? "regular expression" : part) != std::string::npos);
    CHECK(defect.find('\n') == std::string::npos);
  }
}

TEST_CASE("tokenizer files: an expression of any size or depth is compiled or refused",
          "[data][tokenizer]") {
  const auto split_by = [](const std::string& pattern) {
    return defect_of(with("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}}));
  };
  const std::string large = split_by(std::string(10'000'000, 'a'));
  CHECK(large.find("10000000") != std::string::npos);
  CHECK(large.size() < 400);
  for (const char* open : {"(", "[", "(?:", "(?="}) {
    CAPTURE(open);
    std::string deep;
    while (deep.size() < 60'000) {
      deep += open;
    }
    const std::string defect = split_by(deep);
    CHECK(defect.find("regular expression") != std::string::npos);
    CHECK(defect.find('\n') == std::string::npos);
  }
}

TEST_CASE("tokenizer files: added tokens that the normalizer turns into each other end",
          "[data][tokenizer]") {
  using nlohmann::json;
  json file =
      with("normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Replace"}, {"pattern", {{"String", "one"}}}, {"content", "<two>one"}},
              {{"type", "Replace"}, {"pattern", {{"String", "two"}}}, {"content", "one"}}}}});
  file["added_tokens"] = json::array();
  for (const char* content : {"<one>", "<two>", "one", "two"}) {
    file["added_tokens"].push_back({{"id", 900}, {"content", content}, {"normalized", true}});
  }
  auto parts = read_tokenizer_json(file.dump());
  REQUIRE(parts.ok());
  const Tokenizer tokenizer(std::make_shared<const TokenizerParts>(std::move(parts).value()));
  const auto encoded = tokenizer.encode_with_spans("a<one>two one<two>", {});
  REQUIRE(encoded.ok());
  CHECK_FALSE(encoded->ids.empty());
  CHECK(encoded->ids.size() < 60);
  for (const auto& span : encoded->spans) {
    CHECK(span.first <= span.last);
    CHECK(span.last <= 18);
  }
}

TEST_CASE("tokenizer files: added tokens get the reference's ids, whatever the file says",
          "[data][tokenizer][TK-1]") {
  nlohmann::json file = small_file();
  file["added_tokens"] = added({"ab", "<x>", "", "<y>", "<x>"});
  const Tokenizer tokenizer = test::tokenizer_of(file);
  CHECK(test::id_of(tokenizer, "ab") == 5);
  CHECK(test::id_of(tokenizer, "<x>") == 3);
  CHECK(test::id_of(tokenizer, "<y>") == 4);
  CHECK(test::id_of(tokenizer, "<z>") == std::nullopt);
  CHECK(tokenizer.vocab_size() == 6);
  CHECK(tokenizer.token_text(4) == "<y>");
  CHECK(tokenizer.token_text(2).empty());
  CHECK(tokenizer.is_special(5));
  CHECK(tokenizer.decode(test::Ids{0, 3, 2, 99, 1}, true) == "a b");
}

TEST_CASE("tokenizer files: a folder is read in each of its forms, and says what ends a text",
          "[data][tokenizer]") {
  const TempDirectory folder;
  CHECK(Tokenizer::load(folder.path()).error().message.find("tokenizer.json") != std::string::npos);
  const nlohmann::json file = test::fixture_file("gpt2");
  test::write_bytes(folder / "vocab.json", file["model"]["vocab"].dump());
  std::string merges = "#version: 0.2\n";
  for (const auto& merge : file["model"]["merges"]) {
    merges += merge.get<std::string>() + "\n";
  }
  test::write_bytes(folder / "merges.txt", merges);
  const std::string text = "The ship's 12 lighthouses\n\n stay.";
  const test::Ids expected = test::encoded(test::tokenizer_of(file), text);
  auto two_files = Tokenizer::load(folder.path());
  REQUIRE(two_files.ok());
  CHECK(test::encoded(*two_files, text) == expected);

  test::write_bytes(folder / "tokenizer.json", file.dump());
  for (const auto& path : {folder.path(), folder / "tokenizer.json"}) {
    const auto tokenizer = Tokenizer::load(path);
    REQUIRE(tokenizer.ok());
    CHECK(test::encoded(*tokenizer, text) == expected);
    CHECK(tokenizer->end_of_text() == test::id_of(*tokenizer, "</s>"));
  }
  test::write_bytes(folder / "config.json", R"({"eos_token_id": [7, 8]})");
  CHECK(Tokenizer::load(folder.path())->end_of_text() == 7);
  test::write_bytes(folder / "tokenizer_config.json", R"({"eos_token": {"content": "<s>"}})");
  CHECK(Tokenizer::load(folder.path())->end_of_text() == 0);
  // Where texts end is said once for both: a folder's first file that names a token.
  CHECK(*configured_ends(folder.path()) == std::vector<std::uint32_t>{7, 8});
  test::write_bytes(folder / "generation_config.json", R"({"eos_token_id": null})");
  CHECK(*configured_ends(folder.path()) == std::vector<std::uint32_t>{7, 8});
  test::overwrite_bytes(folder / "generation_config.json", R"({"eos_token_id": 9})");
  CHECK(*configured_ends(folder.path()) == std::vector<std::uint32_t>{9});
  test::overwrite_bytes(folder / "generation_config.json",
                        R"({"eos_token_id": [-1, 99999999999]})");
  CHECK(*configured_ends(folder.path()) == std::vector<std::uint32_t>{7, 8});
  CHECK(configured_ends(folder / "nowhere")->empty());

  test::overwrite_bytes(folder / "tokenizer.json", "{\"model\": ");
  const auto broken = Tokenizer::load(folder.path());
  REQUIRE(!broken.ok());
  CHECK(broken.error().message.find("tokenizer.json: not JSON at byte") != std::string::npos);
}

TEST_CASE("tokenizer files: ranks merge by the rank of what they give", "[data][tokenizer]") {
  // 256 bytes and one merge are no vocabulary that anyone knows.
  const auto unknown = read_rank_file("YQ== 0\nYg== 1\nYWI= 2\n");
  REQUIRE(!unknown.ok());
  CHECK(unknown.error().message.find("3 ranks") != std::string::npos);
  const auto broken = read_rank_file("YQ== 0\n\x0a\x0b\x0c");
  REQUIRE(!broken.ok());
  CHECK(broken.error().message.find("SentencePiece") != std::string::npos);
}

TEST_CASE("tokenizer files: what takes the place of several characters is no text's beginning",
          "[data][tokenizer]") {
  using nlohmann::json;
  // The ids are those of tokenizers 0.23.3.
  for (const json& pattern : {json{{"String", "--"}}, json{{"Regex", "-+"}}}) {
    CAPTURE(pattern.dump());
    const json file = {
        {"normalizer", {{"type", "Replace"}, {"pattern", pattern}, {"content", "x"}}},
        {"pre_tokenizer",
         {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}}},
        {"model",
         {{"type", "BPE"}, {"vocab", {{"_", 0}, {"x", 1}, {"-", 2}}}, {"merges", json::array()}}}};
    const Tokenizer tokenizer = test::tokenizer_of(file);
    CHECK(test::encoded(tokenizer, "--") == test::Ids{1});
    CHECK(test::encoded(tokenizer, "x") == test::Ids{0, 1});
  }
}
