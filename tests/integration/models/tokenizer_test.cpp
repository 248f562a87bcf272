// A tokenizer from its file to text that a model writes, with the real program.

#include <algorithm>
#include <sstream>

#include "tests/integration/sites/run_site.hpp"
#include "tests/support/inputs/sentencepiece_fixture.hpp"
#include "tests/support/inputs/small_tokenizer.hpp"

using namespace train;
using namespace train::test;

namespace {

/// A tokenizer, text, and the tokens that the program made of it.
const RunSite& tokenizer_site() {
  static const RunSite site;
  static const bool made = [] {
    fs::create_directories(site / "tok");
    write_bytes(site / "tok/tokenizer.json", small_tokenizer_json());
    write_bytes(site / "text.txt", simple_text(1500));
    const Ended ended = site.call({"data", "prepare", "--input", "text.txt", "--tokenizer", "tok",
                                   "--document-separator", ".\n", "--out", "data"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    site.write_config("data");
    return true;
  }();
  REQUIRE(made);
  return site;
}

}  // namespace

TEST_CASE("tokenizer: ids of a text and back", "[integration][tokenizer]") {
  const RunSite& site = tokenizer_site();
  write_bytes(site / "two.txt", "the hour\nin a there<|endoftext|>\n");
  const Ended lines = site.call({"tokenize", "--tokenizer", "tok", "--lines", "two.txt"});
  INFO(lines.err);
  REQUIRE(lines.exit_code == 0);
  CHECK(lines.out == "257 32 104 263\n260 261 258 114 101 264\n");
  write_bytes(site / "ids.txt", lines.out);
  const Ended back =
      site.call({"detokenize", "--tokenizer", "tok", "--lines", "--special", "ids.txt"});
  CHECK(back.out == read_bytes(site / "two.txt"));
  const Ended whole = site.call({"tokenize", "--tokenizer", "tok/tokenizer.json", "text.txt"});
  REQUIRE(whole.exit_code == 0);
  write_bytes(site / "whole.txt", whole.out);
  CHECK(site.call({"detokenize", "--tokenizer", "tok", "whole.txt"}).out ==
        read_bytes(site / "text.txt"));
  // Bytes, as data prepare takes them, also where they are no UTF-8.
  write_bytes(site / "odd.txt", "a\xff\xc3\xa4");
  const Ended bytes = site.call({"tokenize", "--tokenizer", "bytes", "odd.txt"});
  CHECK(bytes.out == "97 255 195 164\n");
  write_bytes(site / "odd_ids.txt", "97 255 195 256 164\n");
  CHECK(site.call({"detokenize", "--tokenizer", "bytes", "odd_ids.txt"}).out ==
        read_bytes(site / "odd.txt"));
  write_bytes(site / "odd_ids.txt", "257\n");
  check_mistake(site, {"detokenize", "--tokenizer", "bytes", "odd_ids.txt"}, {"0 to 256"});
  check_mistake(site, {"tokenize", "--tokenizer", "nowhere", "text.txt"}, {"nowhere"});
  check_mistake(site, {"tokenize", "--tokenizer", "tok", "no.txt"}, {"no.txt"});
  check_mistake(site, {"tokenize", "--tokenizer", "tok", "tok"}, {"tok", "not a regular file"});
  check_mistake(site, {"detokenize", "--tokenizer", "tok", "text.txt"}, {"is not a token id"});
  for (const char* ids : {"32 4294967296\n", "-1\n", "32 100000\n"}) {
    write_bytes(site / "beyond.txt", ids);
    check_mistake(site, {"detokenize", "--tokenizer", "tok", "beyond.txt"}, {"is not a token id"});
  }
  check_mistake(site, {"tokenize", "--tokenizer", "tok", "--spans", "text.txt"}, {"--jsonl"});
  write_bytes(site / "text.jsonl", "{\"text\": \"the hour\"}\n");
  const Ended spans =
      site.call({"tokenize", "--tokenizer", "tok", "--jsonl", "--spans", "text.jsonl"});
  CHECK(spans.out == "{\"ids\":[257,32,104,263],\"spans\":[[0,3],[3,4],[4,5],[5,8]]}\n");
}

TEST_CASE("tokenizer: token files of any number of threads are the same",
          "[integration][tokenizer][TK-2]") {
  const RunSite& site = tokenizer_site();
  for (const char* threads : {"1", "3"}) {
    const Ended ended =
        site.call({"data", "prepare", "--input", "text.txt", "--tokenizer", "tok", "--threads",
                   threads, "--document-separator", ".\n", "--out", std::string("by") + threads});
    REQUIRE(ended.exit_code == 0);
  }
  for (const char* file : {"train.bin", "val.bin", "meta.json", "tokenizer/tokenizer.json"}) {
    CAPTURE(file);
    CHECK(read_bytes(site / "by1" / file) == read_bytes(site / "by3" / file));
  }
  const auto facts = nlohmann::json::parse(read_bytes(site / "by1/meta.json"));
  CHECK(facts.at("vocab_size") == 265);
  CHECK(facts.at("end_of_text") == 264);
  CHECK(facts.at("tokenizer") == "tok");
  // Both files hold all documents, each ended by its end-of-text.
  const std::uintmax_t bytes =
      fs::file_size(site / "by1/train.bin") + fs::file_size(site / "by1/val.bin");
  CHECK(bytes == 2 * (facts.at("train_tokens").get<std::uintmax_t>() +
                      facts.at("val_tokens").get<std::uintmax_t>()));
  check_mistake(site,
                {"data", "prepare", "--input", "text.txt", "--tokenizer", "none", "--out", "x"},
                {"none"});
}

TEST_CASE("tokenizer: a directory's SentencePiece model is kept with its tokens",
          "[integration][tokenizer]") {
  const RunSite& site = tokenizer_site();
  fs::create_directories(site / "pieces");
  write_bytes(site / "pieces/tokenizer.model", sentencepiece_model("bytes"));
  const Ended ended = site.call({"data", "prepare", "--input", "text.txt", "--tokenizer", "pieces",
                                 "--document-separator", ".\n", "--out", "of_pieces"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(read_bytes(site / "of_pieces/tokenizer/tokenizer.model") == sentencepiece_model("bytes"));
  check_mistake(site, {"tokenize", "--tokenizer", "pieces/none.model", "text.txt"}, {"none.model"});
}

TEST_CASE("tokenizer: a model writes text with its data's tokenizer", "[integration][tokenizer]") {
  const RunSite& site = tokenizer_site();
  const Ended trained = site.train({"run.sample_tokens=20", "run.sample_prompt=\"the old\""});
  CHECK(has(trained.out, "sample:\nthe old"));
  const Ended written =
      site.call({"generate", "runs/tiny", "--prompt", "the quiet", "--tokens", "30"});
  INFO(written.err);
  REQUIRE(written.exit_code == 0);
  CHECK(written.out.starts_with("the quiet"));
  CHECK(written.out.size() > 20);
  CHECK(has(trained.out, "bits per byte"));
}

namespace {

/// Trained on the tokens above: what the cases below write with.
const RunSite& writing_site() {
  static const RunSite& site = tokenizer_site();
  static const bool trained = site.train().exit_code == 0;
  REQUIRE(trained);
  return site;
}

std::string written(Words words) {
  words.insert(words.begin(), {"generate", "runs/tiny", "--temperature", "0", "--tokens", "12"});
  const Ended ended = writing_site().call(std::move(words));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return ended.out;
}

}  // namespace

TEST_CASE("generate: a stop text ends a text and is not shown",
          "[integration][tokenizer][generate]") {
  const std::string all = written({"--prompt", "the quiet"});
  const std::string after = all.substr(9, all.size() - 10);
  REQUIRE(after.size() > 8);
  // Bytes that no token begins or ends with, and what follows them.
  const std::string stop = after.substr(3, 4);
  CHECK(written({"--prompt", "the quiet", "--stop", "no such text", "--stop", stop}) ==
        all.substr(0, 9 + after.find(stop)) + "\n");
  check_mistake(writing_site(), {"generate", "runs/tiny", "--stop", ""}, {"--stop wants a text"});
}

TEST_CASE("generate: prompts of a file have the texts and log-probabilities they have alone",
          "[integration][tokenizer][generate][GEN-1]") {
  const RunSite& site = writing_site();
  const Words prompts = {"the quiet", "a river", "t", "the old man in the boat"};
  std::string lines;
  for (const std::string& prompt : prompts) {
    lines += prompt + "\n";
  }
  write_bytes(site / "prompts.txt", lines);
  const std::string together = written({"--prompts", "prompts.txt", "--logprobs", "--batch", "3"});
  REQUIRE(lines_of(together).size() == prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto line = nlohmann::json::parse(lines_of(together)[i]);
    CHECK(line.at("prompt") == prompts[i]);
    CHECK(prompts[i] + line.at("text").get<std::string>() + "\n" ==
          written({"--prompt", prompts[i]}));
    std::vector<std::int32_t> tokens;
    std::vector<double> log_probabilities;
    for (const std::string& token : lines_of(written({"--prompt", prompts[i], "--logprobs"}))) {
      std::istringstream words(token);
      words >> tokens.emplace_back() >> log_probabilities.emplace_back();
    }
    CHECK(line.at("tokens").get<std::vector<std::int32_t>>() == tokens);
    CHECK(line.at("logprobs").get<std::vector<double>>() == log_probabilities);
    CHECK(std::all_of(log_probabilities.begin(), log_probabilities.end(),
                      [](double value) { return value < 0.0; }));
  }
  check_mistake(site, {"generate", "runs/tiny", "--prompts", "none.txt"}, {"none.txt"});
  check_mistake(site, {"generate", "runs/tiny", "--prompts", "prompts.txt", "--prompt", "x"},
                {"--prompt or --prompts, not both"});
}

TEST_CASE("generate: a chat is the text that its template renders",
          "[integration][tokenizer][generate]") {
  const std::string rendered =
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nthe river<|im_end|>\n"
      "<|im_start|>assistant\n";
  const std::string plain = written({"--prompt", rendered});
  const std::string answer =
      written({"--chat", "--template", "chatml", "--system", "Be brief.", "--prompt", "the river"});
  CHECK(rendered + answer == plain);
  check_mistake(writing_site(), {"generate", "runs/tiny", "--system", "x"}, {"need --chat"});
  check_mistake(writing_site(), {"generate", "runs/tiny", "--chat", "--template", "no-such"},
                {"no-such"});
  check_mistake(writing_site(), {"generate", "runs/tiny", "--chat", "--prompt", "x"}, {"template"});
}
