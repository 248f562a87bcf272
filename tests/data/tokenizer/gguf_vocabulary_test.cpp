#include "data/tokenizer/formats/gguf_vocabulary.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat/template_files.hpp"
#include "data/tokenizer/formats/gguf_tokenizer.hpp"
#include "storage/weight_files/gguf_file.hpp"
#include "storage/weight_files/gguf_writer.hpp"
#include "tests/data/tokenizer/tokenizer_fixture.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/sentencepiece_fixture.hpp"

// Tokenizers of fixtures, whose ids their libraries gave, written as GGUF and read again.
namespace train::data::gguf_vocabulary_test {
namespace {

using nlohmann::json;
using test::TempDirectory;
using Texts = std::vector<std::string>;

/// Files of a model's directory, by name.
using Files = std::map<std::string, std::string>;

Files json_files(const json& tokenizer,
                 const json& settings = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}) {
  return {{"tokenizer.json", tokenizer.dump()}, {"tokenizer_config.json", settings.dump()}};
}

Result<GgufVocabulary> made_of(const Files& files, std::int64_t rows,
                               const nlohmann::ordered_json& config = {}) {
  const TempDirectory directory;
  for (const auto& [name, text] : files) {
    test::write_bytes(directory / name, text);
  }
  return gguf_vocabulary(directory.path(), rows, config);
}

GgufVocabulary vocabulary_of(const Files& files, std::int64_t rows,
                             const nlohmann::ordered_json& config = {}) {
  auto made = made_of(files, rows, config);
  INFO((made.ok() ? "" : made.error().message));
  REQUIRE(made.ok());
  return std::move(made).value();
}

std::string error_of(const Files& files, std::int64_t rows) {
  const auto made = made_of(files, rows);
  if (made.ok()) {
    return "written";
  }
  CHECK(made.error().kind == ErrorKind::user);
  CHECK(made.error().message.find('\n') == std::string::npos);
  return made.error().message;
}

/// The fields in a file of their own.
storage::GgufFile file_with(const TempDirectory& directory, const GgufVocabulary& made) {
  std::vector<storage::GgufField> fields = {{"general.architecture", "llama"}};
  fields.insert(fields.end(), made.fields.begin(), made.fields.end());
  auto writer = storage::GgufWriter::create(directory / "model.gguf", fields, {});
  REQUIRE(writer);
  REQUIRE(writer->commit().ok());
  auto file = storage::GgufFile::open(directory / "model.gguf");
  REQUIRE(file);
  return std::move(file).value();
}

/// The tokenizer's files as GgufFile gives them, in `directory`.
Tokenizer read_again(const TempDirectory& directory, const GgufVocabulary& made) {
  const auto files = gguf_tokenizer_files(file_with(directory, made));
  REQUIRE(files.ok());
  REQUIRE_FALSE(files->empty());
  for (const auto& [name, bytes] : *files) {
    test::write_bytes(directory / name, bytes);
  }
  auto tokenizer = Tokenizer::load(directory.path());
  INFO((tokenizer.ok() ? "" : tokenizer.error().message));
  REQUIRE(tokenizer.ok());
  return std::move(tokenizer).value();
}

template <class T>
const T* value_of(const GgufVocabulary& made, std::string_view key) {
  const auto found =
      std::find_if(made.fields.begin(), made.fields.end(),
                   [key](const storage::GgufField& field) { return field.key == key; });
  return found == made.fields.end() ? nullptr : std::get_if<T>(&found->value);
}

/// "" where the file has none.
std::string splitting_of(const GgufVocabulary& made) {
  const auto* name = value_of<std::string>(made, "tokenizer.ggml.pre");
  return name == nullptr ? "" : *name;
}

constexpr std::int64_t kRows = 600;

json digits_apart(json tokenizer) {
  tokenizer["pre_tokenizer"]["pretokenizers"].insert(
      tokenizer["pre_tokenizer"]["pretokenizers"].begin(),
      json{{"type", "Digits"}, {"individual_digits", true}});
  return tokenizer;
}

void check_same_ids(const Tokenizer& found, const json& fixture) {
  bool special = true;
  for (const auto& one : fixture.at("cases")) {
    INFO(one.dump());
    CHECK(test::encoded(found, one[0].get<std::string>(), special) == one[1].get<test::Ids>());
    special = !special;
  }
}

const json& fixture_named(std::string_view name) {
  const auto& all = test::tokenizer_fixtures();
  const auto found =
      std::find_if(all.begin(), all.end(), [name](const json& one) { return one["name"] == name; });
  REQUIRE(found != all.end());
  return *found;
}

}  // namespace

TEST_CASE("gguf vocabulary: a tokenizer that is written and read gives the same ids",
          "[data][gguf_vocabulary]") {
  for (const auto& [name, splitting] :
       {std::pair("gpt2", "gpt-2"), std::pair("llama3", "llama-bpe"),
        std::pair("qwen2", "qwen2")}) {
    INFO(name);
    const json& fixture = fixture_named(name);
    const GgufVocabulary made = vocabulary_of(json_files(fixture.at("file")), kRows);
    CHECK(splitting_of(made) == splitting);
    const TempDirectory directory;
    check_same_ids(read_again(directory, made), fixture);
    const auto* tokens = value_of<Texts>(made, "tokenizer.ggml.tokens");
    REQUIRE(tokens != nullptr);
    CHECK(tokens->size() == kRows);
    CHECK(tokens->back() == "[PAD599]");
  }
}

TEST_CASE("gguf vocabulary: digits apart are another way of splitting, which is kept",
          "[data][gguf_vocabulary]") {
  const json file = digits_apart(fixture_named("gpt2").at("file"));
  const GgufVocabulary made = vocabulary_of(json_files(file), kRows);
  CHECK(splitting_of(made) == "smollm");
  const TempDirectory directory;
  const Tokenizer found = read_again(directory, made);
  const Tokenizer wanted = test::tokenizer_of(file);
  std::size_t others = 0;
  const Tokenizer plain = test::tokenizer_of(fixture_named("gpt2").at("file"));
  std::vector<std::string> texts = {"12345 and 1999", "a1b22 333"};
  for (const auto& one : fixture_named("gpt2").at("cases")) {
    texts.push_back(one[0].get<std::string>());
  }
  for (const std::string& text : texts) {
    INFO(text);
    CHECK(test::encoded(found, text) == test::encoded(wanted, text));
    others += test::encoded(found, text) == test::encoded(plain, text) ? 0 : 1;
  }
  CHECK(others >= 2);
}

TEST_CASE("gguf vocabulary: ways of splitting have llama.cpp's names, or are refused",
          "[data][gguf_vocabulary]") {
  const std::map<std::string, std::string> named = {{"qwen35", "qwen35"},
                                                    {"tekken", "tekken"},
                                                    {"deepseek", "deepseek-v3"},
                                                    {"marked", "gpt-2"},
                                                    {"o200k", "gpt-4o"}};
  const std::map<std::string, std::string> refused = {{"another pattern", "splits text"},
                                                      {"llama2", "splits text"},
                                                      {"mistral", "splits text"},
                                                      {"gemma", "splits text"},
                                                      {"NFKC", "normalises no text"},
                                                      {"NFD", "normalises no text"},
                                                      {"Lowercase", "normalises no text"},
                                                      {"classes", "splits text"},
                                                      {"words", "splits text"},
                                                      {"table", "splits text"}};
  for (const auto& [name, splitting] : named) {
    INFO(name);
    CHECK(splitting_of(vocabulary_of(json_files(fixture_named(name).at("file")), kRows)) ==
          splitting);
  }
  for (const auto& [name, cause] : refused) {
    const std::string error = error_of(json_files(fixture_named(name).at("file")), 1000);
    INFO(name << ": " << error);
    CHECK(error.find(cause) != std::string::npos);
    CHECK(error.find("--no-tokenizer") != std::string::npos);
  }
}

TEST_CASE("gguf vocabulary: words taken whole are merged where merges make every token",
          "[data][gguf_vocabulary]") {
  json file = fixture_named("gpt2").at("file");
  file["model"]["ignore_merges"] = true;
  const GgufVocabulary made = vocabulary_of(json_files(file), kRows);
  CHECK(splitting_of(made) == "gpt-2");
  const TempDirectory directory;
  const Tokenizer found = read_again(directory, made);
  const Tokenizer wanted = test::tokenizer_of(file);
  for (const auto& one : fixture_named("gpt2").at("cases")) {
    const auto text = one[0].get<std::string>();
    INFO(text);
    CHECK(test::encoded(found, text) == test::encoded(wanted, text));
  }
  // A token that no merge makes is a word of its own where words are taken whole.
  json& vocab = file["model"]["vocab"];
  vocab["qzqzq"] = vocab.size() + 200;
  CHECK(error_of(json_files(file), kRows + 1000).find("splits text") != std::string::npos);
}

TEST_CASE("gguf vocabulary: texts that llama.cpp reads otherwise are noted",
          "[data][gguf_vocabulary]") {
  const auto notes_with = [](const json& file) {
    std::string all;
    for (const std::string& note : vocabulary_of(json_files(file), kRows + 1000).notes) {
      all += note + "\n";
    }
    return all;
  };
  const auto notes_of = [&](std::string_view name) {
    return notes_with(fixture_named(name).at("file"));
  };
  CHECK(notes_of("gpt2").empty());
  CHECK(notes_of("qwen2").find("combining") != std::string::npos);
  CHECK(notes_of("marked").find("spaces beside them") != std::string::npos);
  CHECK(notes_of("o200k").find("capitals in ASCII alone") != std::string::npos);
  json file = fixture_named("gpt2").at("file");
  json& vocab = file["model"]["vocab"];
  vocab["</s>"] = vocab.size() + 200;
  CHECK(notes_with(file).find("the ordinary token \"</s>\"") != std::string::npos);
  file["added_tokens"].push_back(
      {{"id", vocab.at("</s>")}, {"content", "</s>"}, {"special", true}, {"normalized", false}});
  CHECK(notes_with(file).empty());
}

TEST_CASE("gguf vocabulary: SentencePiece's pieces come back, and other ways of it are refused",
          "[data][gguf_vocabulary]") {
  const json& fixture = test::sentencepiece_fixture();
  for (const char* name : {"bytes", "no_prefix"}) {
    INFO(name);
    const json settings = {{"tokenizer_class", "LlamaTokenizer"},
                           {"legacy", false},
                           {"bos_token", "<s>"},
                           {"eos_token", "</s>"},
                           {"add_bos_token", true},
                           {"add_eos_token", false}};
    const GgufVocabulary made = vocabulary_of({{"tokenizer.model", test::sentencepiece_model(name)},
                                               {"tokenizer_config.json", settings.dump()}},
                                              2000);
    CHECK(*value_of<std::string>(made, "tokenizer.ggml.model") == "llama");
    CHECK(*value_of<bool>(made, "tokenizer.ggml.add_bos_token"));
    const TempDirectory directory;
    const Tokenizer found = read_again(directory, made);
    for (std::size_t i = 0; i < fixture.at("texts").size(); ++i) {
      const auto text = fixture.at("texts")[i].get<std::string>();
      INFO(text);
      const auto wanted = fixture.at("models").at(name).at("ids")[i].get<test::Ids>();
      CHECK(test::encoded(found, text) == wanted);
    }
  }
  const auto error_with = [](const char* name) {
    return error_of({{"tokenizer.model", test::sentencepiece_model(name)}}, 2000);
  };
  CHECK_THAT(error_with("unigram"), Catch::Contains("BPE") && Catch::Contains("--no-tokenizer"));
  CHECK_THAT(error_with("suffix"), Catch::Contains("before words"));
}

TEST_CASE("gguf vocabulary: added tokens, ids of special ones, and the frame of a text",
          "[data][gguf_vocabulary]") {
  json file = fixture_named("gpt2").at("file");
  const auto add = [&file](int id, const char* content, bool special) {
    file["added_tokens"].push_back({{"id", id},
                                    {"content", content},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", special}});
  };
  add(400, "<|im_end|>", false);
  add(401, "[own]", false);
  add(402, "[ctl]", true);
  const json settings = {{"bos_token", {{"content", "<s>"}}},
                         {"eos_token", "</s>"},
                         {"pad_token", "[ctl]"},
                         {"added_tokens_decoder", {{"403", {{"content", "[late]"}}}}},
                         {"add_bos_token", true},
                         {"add_eos_token", false}};
  const auto made = vocabulary_of(json_files(file, settings), 410, {{"unk_token_id", 7U}});
  const auto* types = value_of<std::vector<std::int32_t>>(made, "tokenizer.ggml.token_type");
  REQUIRE(types != nullptr);
  CHECK(types->at(10) == 1);
  CHECK(types->at(400) == 3);  // Control by its form.
  CHECK(types->at(401) == 4);
  CHECK(types->at(402) == 3);
  CHECK(types->at(403) == 4);
  CHECK(types->at(409) == 5);
  std::map<std::string, std::uint32_t> ids;
  for (const auto& token : file.at("added_tokens")) {
    ids[token.at("content").get<std::string>()] = token.at("id").get<std::uint32_t>();
  }
  const auto id_is = [&made](const char* key, std::uint32_t id) {
    const auto* found = value_of<std::uint32_t>(made, key);
    INFO(key);
    REQUIRE(found != nullptr);
    CHECK(*found == id);
  };
  id_is("tokenizer.ggml.bos_token_id", ids.at("<s>"));
  id_is("tokenizer.ggml.eos_token_id", ids.at("</s>"));
  id_is("tokenizer.ggml.padding_token_id", 402);
  id_is("tokenizer.ggml.unknown_token_id", 7);
  CHECK(*value_of<bool>(made, "tokenizer.ggml.add_bos_token"));
  CHECK_FALSE(*value_of<bool>(made, "tokenizer.ggml.add_eos_token"));
  const TempDirectory directory;
  const auto found = test::encoded(read_again(directory, made), "a[own]b<|im_end|>", true);
  CHECK(found.front() == ids.at("<s>"));
  CHECK(found.back() == 400);
  CHECK(std::count(found.begin(), found.end(), 401U) == 1);
}

TEST_CASE("gguf vocabulary: no text begins with BOS where the tokenizer adds none",
          "[data][gguf_vocabulary]") {
  json file = fixture_named("llama3").at("file");
  file.erase("post_processor");
  const auto made = vocabulary_of(json_files(file), kRows);
  CHECK(splitting_of(made) == "llama-bpe");  // To which llama.cpp adds it, unless told.
  const auto* bos = value_of<bool>(made, "tokenizer.ggml.add_bos_token");
  REQUIRE(bos != nullptr);
  CHECK_FALSE(*bos);
}

TEST_CASE("gguf vocabulary: turns of GLM end where another begins", "[data][gguf_vocabulary]") {
  json file = fixture_named("gpt2").at("file");
  for (const auto& [id, text] :
       {std::pair{400, "[gMASK]"}, std::pair{401, "<|user|>"}, std::pair{402, "<|observation|>"}}) {
    file["added_tokens"].push_back({{"id", id}, {"content", text}, {"special", true}});
  }
  const auto id_of = [&file](const char* model_type, const char* key) {
    const json settings = {{"eos_token", "</s>"}};
    const auto made = vocabulary_of(json_files(file, settings), 410, {{"model_type", model_type}});
    const auto* found = value_of<std::uint32_t>(made, key);
    return found == nullptr ? 0 : *found;
  };
  CHECK(id_of("glm4_moe", "tokenizer.ggml.bos_token_id") == 400);
  CHECK(id_of("glm4_moe", "tokenizer.ggml.eot_token_id") == 401);
  CHECK(id_of("glm4_moe", "tokenizer.ggml.eom_token_id") == 402);
  CHECK(id_of("llama", "tokenizer.ggml.bos_token_id") == 0);
  CHECK(id_of("llama", "tokenizer.ggml.eot_token_id") == 0);
}

TEST_CASE("gguf vocabulary: chat templates, one or several, come back", "[data][gguf_vocabulary]") {
  const json& file = fixture_named("gpt2").at("file");
  struct Case {
    json settings;
    Files more;
    TemplateSources wanted;
  };
  const std::vector<Case> cases = {
      {{{"chat_template", "one"}}, {}, {{"default", "one"}}},
      {json::object(), {{"chat_template.jinja", "two"}}, {{"default", "two"}}},
      {json::object(),
       {{"chat_template.json", json{{"chat_template", "old"}}.dump()}},
       {{"default", "old"}}},
      {{{"chat_template",
         {{{"name", "default"}, {"template", "a"}}, {{"name", "tool_use"}, {"template", "b"}}}}},
       {},
       {{"default", "a"}, {"tool_use", "b"}}}};
  for (const Case& one : cases) {
    INFO(one.settings.dump());
    Files files = json_files(file, one.settings);
    files.insert(one.more.begin(), one.more.end());
    const TempDirectory directory;
    (void)read_again(directory, vocabulary_of(files, kRows));
    const auto found = read_template_files(directory.path());
    REQUIRE(found.ok());
    CHECK(found->sources == one.wanted);
  }
}

TEST_CASE("gguf vocabulary: no tokenizer is noted, files that do not fit are named",
          "[data][gguf_vocabulary]") {
  const GgufVocabulary none = vocabulary_of({}, 100);
  CHECK(*value_of<std::string>(none, "tokenizer.ggml.model") == "no_vocab");
  REQUIRE(none.notes.size() == 1);
  const auto made = gguf_vocabulary({}, 100, {});
  REQUIRE(made.ok());
  CHECK(made->notes == none.notes);
  const json& file = fixture_named("gpt2").at("file");
  CHECK_THAT(error_of(json_files(file), 300),
             Catch::Contains("token 3") && Catch::Contains("300 rows of the embedding"));
  CHECK_THAT(error_of({{"tokenizer.json", "{"}}, 300),
             Catch::Contains("tokenizer.json") && Catch::Contains("no JSON"));
}

}  // namespace train::data::gguf_vocabulary_test
