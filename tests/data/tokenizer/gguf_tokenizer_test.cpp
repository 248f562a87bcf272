#include "data/tokenizer/formats/gguf_tokenizer.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/chat/template_files.hpp"
#include "data/tokenizer/formats/sentencepiece/sentencepiece_model.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "tests/storage/weight_files/gguf_bytes.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/sentencepiece_fixture.hpp"

using namespace train;
using namespace train::data;
using train::test::GgufBytes;
using train::test::TempDirectory;

namespace {

using Ids = std::vector<std::uint32_t>;
using PieceType = SentencePieceModel::PieceType;
using Pieces = std::vector<SentencePieceModel::Piece>;

constexpr std::uint32_t kInt32 = 5;
constexpr std::uint32_t kCount = 4;
constexpr std::uint32_t kFloat = 6;
constexpr std::uint32_t kBool = 7;
constexpr std::uint32_t kText = 8;
constexpr std::uint32_t kArray = 9;

void add_text(GgufBytes& file, std::string_view key, std::string_view value) {
  file.text(key).number(kText, 4).text(value);
}

GgufBytes& start_array(GgufBytes& file, std::string_view key, std::uint32_t kind,
                       std::size_t count) {
  return file.text(key).number(kArray, 4).number(kind, 4).number(count, 8);
}

/// A file without tensors that has the pieces, of which `scores_count` have scores.
std::string gguf_of(const Pieces& pieces, std::size_t scores_count) {
  GgufBytes file;
  file.start(0, 9);
  add_text(file, "general.architecture", "llama");
  add_text(file, "tokenizer.ggml.model", "llama");
  add_text(file, "tokenizer.chat_template", "{{ messages }}");
  file.key("tokenizer.ggml.eos_token_id", kCount, 2, 4);
  file.key("tokenizer.ggml.unknown_token_id", kCount, 0, 4);
  file.key("tokenizer.ggml.add_space_prefix", kBool, 1, 1);
  start_array(file, "tokenizer.ggml.tokens", kText, pieces.size());
  for (const auto& piece : pieces) {
    // The user's own have spaces in such files.
    file.text(piece.text == "\u2581\u2581" ? "  " : piece.text);
  }
  start_array(file, "tokenizer.ggml.scores", kFloat, scores_count);
  for (std::size_t id = 0; id < scores_count; ++id) {
    file.number(std::bit_cast<std::uint32_t>(pieces[id].score), 4);
  }
  start_array(file, "tokenizer.ggml.token_type", kInt32, pieces.size());
  for (const auto& piece : pieces) {
    // As Gemma's file has it, the unknown piece is known by its id alone.
    const bool unknown = piece.type == PieceType::unknown;
    file.number(static_cast<std::uint64_t>(unknown ? PieceType::control : piece.type), 4);
  }
  file.data(0);
  return file.bytes;
}

Result<std::map<std::string, std::string>> files_of(const std::string& bytes) {
  const TempDirectory directory;
  test::write_bytes(directory / "model.gguf", bytes);
  const auto file = storage::GgufFile::open(directory / "model.gguf");
  CAPTURE(file.ok() ? std::string() : file.error().message);
  REQUIRE(file.ok());
  return gguf_tokenizer_files(*file);
}

/// A file of bytes and merges without tensors; no `pre`: nullptr.
std::string bytes_gguf(const char* architecture, const char* pre,
                       const std::vector<std::string>& tokens = {"a", "</s>", "<|im_end|>",
                                                                 "<turn>", "b"}) {
  GgufBytes file;
  file.start(0, pre == nullptr ? 9 : 10);
  add_text(file, "general.architecture", architecture);
  add_text(file, "tokenizer.ggml.model", "gpt2");
  if (pre != nullptr) {
    add_text(file, "tokenizer.ggml.pre", pre);
  }
  add_text(file, "tokenizer.chat_template", "one");
  add_text(file, "tokenizer.chat_template.tool_use", "two");
  file.key("tokenizer.ggml.eos_token_id", kCount, 1, 4);
  file.key("tokenizer.ggml.eot_token_id", kCount, 3, 4);
  start_array(file, "tokenizer.ggml.tokens", kText, tokens.size());
  for (const std::string& token : tokens) {
    file.text(token);
  }
  start_array(file, "tokenizer.ggml.merges", kText, 0);
  start_array(file, "tokenizer.ggml.token_type", kInt32, tokens.size());
  for (const std::string& token : tokens) {
    file.number(token.size() > 1 ? 3 : 1, 4);
  }
  file.data(0);
  return file.bytes;
}

}  // namespace

TEST_CASE("gguf tokenizer: pieces with scores come along as a SentencePiece model",
          "[data][gguf_tokenizer]") {
  const std::string model = test::sentencepiece_model("bytes");
  const auto pieces = parse_sentencepiece_model(model)->pieces;
  const auto files = files_of(gguf_of(pieces, pieces.size()));
  REQUIRE(files.ok());
  REQUIRE(files->size() == 3);
  CHECK(files->at("chat_template.jinja") == "{{ messages }}");
  const auto config = nlohmann::json::parse(files->at("tokenizer_config.json"));
  CHECK(config.at("eos_token") == pieces[2].text);
  const TempDirectory directory;
  for (const auto& [name, bytes] : *files) {
    test::write_bytes(directory / name, bytes);
  }
  const auto tokenizer = Tokenizer::load(directory.path());
  REQUIRE(tokenizer.ok());
  CHECK(tokenizer->end_of_text() == 2);
  const auto& fixture = test::sentencepiece_fixture();
  for (std::size_t i = 0; i < fixture.at("texts").size(); ++i) {
    CAPTURE(i);
    const auto ids = tokenizer->encode(fixture.at("texts")[i].get<std::string>(), false);
    REQUIRE(ids.ok());
    CHECK(*ids == fixture.at("models").at("bytes").at("ids")[i].get<Ids>());
  }
}

TEST_CASE("gguf tokenizer: BOS and EOS are put around a text where the file or llama.cpp says so",
          "[data][gguf_tokenizer]") {
  struct Case {
    const char* pre;
    int bos, eos;  ///< Flags; -1: the file has none.
    Ids ids;       ///< Of "a".
  };
  const auto [pre, bos, eos, wanted] = GENERATE(values<Case>({{"llama-bpe", -1, -1, {1, 0}},
                                                              {"llama3", -1, -1, {1, 0}},
                                                              {"llama-bpe", 0, -1, {0}},
                                                              {"llama-bpe", 1, 1, {1, 0, 2}},
                                                              {"gpt-2", -1, -1, {0}},
                                                              {"qwen2", -1, -1, {0}},
                                                              {"qwen2", 1, -1, {1, 0}}}));
  CAPTURE(pre, bos, eos);
  GgufBytes file;
  file.start(0, 8 + (bos < 0 ? 0 : 1) + (eos < 0 ? 0 : 1));
  add_text(file, "general.architecture", "llama");
  add_text(file, "tokenizer.ggml.model", "gpt2");
  add_text(file, "tokenizer.ggml.pre", pre);
  file.key("tokenizer.ggml.bos_token_id", kCount, 1, 4);
  file.key("tokenizer.ggml.eos_token_id", kCount, 2, 4);
  for (const auto& [key, flag] : {std::pair("tokenizer.ggml.add_bos_token", bos),
                                  std::pair("tokenizer.ggml.add_eos_token", eos)}) {
    if (flag >= 0) {
      file.key(key, kBool, static_cast<std::uint64_t>(flag), 1);
    }
  }
  start_array(file, "tokenizer.ggml.tokens", kText, 4).text("a").text("<s>").text("</s>").text("b");
  start_array(file, "tokenizer.ggml.merges", kText, 0);
  start_array(file, "tokenizer.ggml.token_type", kInt32, 4)
      .number(1, 4)
      .number(3, 4)
      .number(3, 4)
      .number(1, 4);
  file.data(0);
  const auto files = files_of(file.bytes);
  REQUIRE(files.ok());
  const TempDirectory directory;
  for (const auto& [name, bytes] : *files) {
    test::write_bytes(directory / name, bytes);
  }
  const auto tokenizer = Tokenizer::load(directory.path());
  REQUIRE(tokenizer.ok());
  const auto ids = tokenizer->encode("a", /*add_special_tokens=*/true);
  REQUIRE(ids.ok());
  CHECK(*ids == wanted);
}

TEST_CASE("gguf tokenizer: turns end where llama.cpp ends them, and templates keep their names",
          "[data][gguf_tokenizer]") {
  const auto files = files_of(bytes_gguf("llama", "qwen2"));
  REQUIRE(files.ok());
  using nlohmann::json;
  CHECK(json::parse(files->at("generation_config.json")).at("eos_token_id") == json{1, 3, 2});
  CHECK_FALSE(files->contains("chat_template.jinja"));
  const TempDirectory directory;
  for (const auto& [name, bytes] : *files) {
    test::write_bytes(directory / name, bytes);
  }
  const auto templates = read_template_files(directory.path());
  REQUIRE(templates.ok());
  CHECK(templates->sources == TemplateSources{{"default", "one"}, {"tool_use", "two"}});
}

TEST_CASE("gguf tokenizer: how an unnamed one splits is known of GPT-2's kin alone",
          "[data][gguf_tokenizer]") {
  const char* unnamed = GENERATE(static_cast<const char*>(nullptr), "default");
  CHECK(files_of(bytes_gguf("gpt2", unnamed))->contains("tokenizer.json"));
  CHECK(files_of(bytes_gguf("gptneox", unnamed))->contains("tokenizer.json"));
  CHECK(files_of(bytes_gguf("llama", unnamed))->empty());
  CHECK(files_of(bytes_gguf("llama", "other"))->empty());
}

TEST_CASE("gguf tokenizer: a vocabulary keeps its order, and of a token that comes twice the first",
          "[data][gguf_tokenizer][exhaustive]") {
  constexpr std::size_t count = 60'000;  // Minutes where each is compared with all before.
  std::vector<std::string> tokens;
  for (std::size_t id = 0; id < count; ++id) {
    tokens.push_back("t" + std::to_string(id % (count - 1)));
  }
  const auto files = files_of(bytes_gguf("llama", "gpt-2", tokens));
  REQUIRE(files.ok());
  const std::string& text = files->at("tokenizer.json");
  CHECK(text.find(R"("vocab":{"t0":0,"t1":1,"t2":2,)") != std::string::npos);
  CHECK(text.find(R"("t59998":59998})") != std::string::npos);
}

TEST_CASE("gguf tokenizer: lists that do not fit each other are refused",
          "[data][gguf_tokenizer]") {
  const std::string model = test::sentencepiece_model("bytes");
  const auto pieces = parse_sentencepiece_model(model)->pieces;
  const auto files = files_of(gguf_of(pieces, pieces.size() - 1));
  REQUIRE_FALSE(files.ok());
  CHECK(files.error().kind == ErrorKind::user);
  CHECK(files.error().message.find("scores") != std::string::npos);
}
