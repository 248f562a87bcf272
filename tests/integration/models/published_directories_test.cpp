// Directories of models that are not as their config.json says, or not models: what is read of them
// is named, and what they are instead.

#include "storage/safetensors_header.hpp"
#include "storage/safetensors_writer.hpp"
#include "storage/weight_files/weight_directory.hpp"
#include "tests/integration/sites/published_site.hpp"
#include "tests/support/inputs/small_tokenizer.hpp"

using namespace train;
using namespace train::test;

namespace {

using Json = nlohmann::json;

/// The tied model's directory once more, with a head of its own: the embedding's rows backwards.
void write_other_head(const RunSite& site, const fs::path& to) {
  fs::remove_all(to);
  fs::copy(site / "model", to, fs::copy_options::recursive);
  const auto opened = storage::WeightDirectory::open(site / "model");
  REQUIRE(opened.ok());
  std::vector<storage::TensorHeading> headings;
  for (const std::string& name : opened->names()) {
    headings.push_back({name, opened->find(name)->shape, "F32"});
  }
  headings.push_back({"lm_head.weight", {300, 32}, "F32"});
  auto writer = storage::SafetensorsWriter::create(to / "model.safetensors", headings);
  REQUIRE(writer.ok());
  for (const storage::TensorHeading& heading : headings) {
    const bool head = heading.name == "lm_head.weight";
    std::vector<float> values(storage::tensor_size_bytes("F32", heading.shape).value() / 4);
    REQUIRE(opened->read_floats(head ? "model.embed_tokens.weight" : heading.name, 0, values).ok());
    if (head) {
      std::reverse(values.begin(), values.end());
    }
    REQUIRE(writer->write(std::as_bytes(std::span(values))).ok());
  }
  REQUIRE(writer->commit().ok());
}

Json config_in(const fs::path& directory) {
  return Json::parse(read_bytes(directory / "config.json"));
}

/// A model of learned positions that was trained on tokens of a small tokenizer, and its export.
const RunSite& tokens_site() {
  static const RunSite site;
  static const bool made = [] {
    fs::create_directories(site / "tok");
    write_bytes(site / "tok/tokenizer.json", small_tokenizer_json());
    write_bytes(site / "text.txt", simple_text(1500));
    REQUIRE(site.call({"data", "prepare", "--input", "text.txt", "--tokenizer", "tok",
                       "--document-separator", ".\n", "--out", "data"})
                .exit_code == 0);
    site.write_config("data");
    write_bytes(site / "tiny.json", R"({"model_type": "gpt2", "vocab_size": 265, "n_positions": 40,
        "n_embd": 16, "n_layer": 1, "n_head": 2, "attn_pdrop": 0, "resid_pdrop": 0,
        "embd_pdrop": 0})");
    write_run_file(site, "config = \"tiny.json\"");
    site.train({"run.name=fresh", "run.steps=2", "schedule.warmup_steps=1"});
    const Ended ended = site.call({"export", "runs/fresh", "--out", "model"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return true;
  }();
  REQUIRE(made);
  return site;
}

}  // namespace

TEST_CASE("published: a head that config.json ties to another embedding is trained, and kept",
          "[integration][published]") {
  const RunSite& site = published_site();
  write_other_head(site, site / "headed");
  REQUIRE(config_in(site / "headed").at("tie_word_embeddings") == true);
  const Ended converted = site.call({"convert", "headed", "--out", "headed_again"});
  REQUIRE(converted.exit_code == 0);
  CHECK(has(converted.err, "model_note headed: lm_head.weight is another matrix"));
  CHECK(config_in(site / "headed_again").at("tie_word_embeddings") == false);
  CHECK(read_bytes(site / "headed_again/model.safetensors").find("lm_head.weight") !=
        std::string::npos);
  const Words keys = {"model.from=headed", "run.name=headed", "checkpoint.interval_steps=2"};
  const Ended begun = site.start_run(joined(keys, {"run.steps=4", "run.steps_per_job=2"}))->wait();
  CHECK(begun.exit_code == 75);
  CHECK(has(begun.err, "model_note headed: lm_head.weight is another matrix"));
  fs::remove_all(site / "headed");  // the run has its own word of the head
  const Ended ended = site.start_run(joined(keys, {"run.steps=4"}))->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  REQUIRE(site.call({"export", "runs/headed", "--out", "headed_trained"}).exit_code == 0);
  CHECK(config_in(site / "headed_trained").at("tie_word_embeddings") == false);
  const auto trained = storage::WeightDirectory::open(site / "headed_trained");
  REQUIRE(trained.ok());
  CHECK(trained->find("lm_head.weight") != nullptr);
}

TEST_CASE("published: an export carries the tokenizer of the data", "[integration][published]") {
  const RunSite& site = tokens_site();
  CHECK(read_bytes(site / "model/tokenizer.json") == small_tokenizer_json());
  CHECK(Json::parse(read_bytes(site / "model/generation_config.json")).at("eos_token_id") == 264);
  CHECK(site.call({"generate", "model", "--prompt", "the", "--tokens", "2"}).exit_code == 0);
}

TEST_CASE("published: a model with few positions writes text, and says what it does not see",
          "[integration][published][generate]") {
  const RunSite& site = tokens_site();
  const Ended cut = site.call({"generate", "model", "--prompt", std::string(60, 'x'), "--tokens",
                               "1", "--temperature", "0"});
  CHECK(cut.exit_code == 0);
  CHECK(
      has(cut.err, "prompt_cut the prompt: it has 60 tokens, of which the model sees the last 40"));
  check_mistake(site, {"generate", "model", "--prompt", "x", "--context", "41"},
                {"--context 41", "40 learned positions"});
}

TEST_CASE("published: a tokenizer may have tokens that the model does not know",
          "[integration][published]") {
  const RunSite& site = tokens_site();
  std::string small = read_bytes(site / "tiny.json");
  small.replace(small.find("265"), 3, "264");
  write_bytes(site / "small.json", small);
  // The end of every document is token 264: it is refused where it is read.
  const Ended ended =
      site.start_run({"model.config=small.json", "run.name=small", "run.steps=2"})->wait();
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "token 264 at position"));
  CHECK(has(ended.err, "is outside the vocabulary of 264"));
}

TEST_CASE("published: an adapter alone, and a name that is also a shape's, are one line",
          "[integration][published][mistakes]") {
  const RunSite& site = published_site();
  fs::create_directories(site / "adapter");
  write_bytes(site / "adapter/adapter_config.json", R"({"base_model_name_or_path": "x"})");
  for (const Words& words : {Words{"generate", "adapter"}, Words{"describe", "adapter"},
                             Words{"convert", "adapter", "--out", "none"}}) {
    check_mistake(site, words, {"adapter: an adapter for a model", "merge_and_unload"});
  }
  fs::copy(site / "model", site / "gpt2", fs::copy_options::recursive);
  check_mistake(site, {"describe", "gpt2"}, {"names a shipped shape", "write ./gpt2"});
  CHECK(has(site.call({"describe", "./gpt2"}).out, "qwen3"));
  fs::remove_all(site / "gpt2");
}

TEST_CASE("published: what is left over of quantised weights is named beside full ones",
          "[integration][published]") {
  const RunSite& site = published_site();
  fs::remove_all(site / "left_over");
  fs::copy(site / "model", site / "left_over", fs::copy_options::recursive);
  Json config = config_in(site / "left_over");
  config["quantization_config"] = {{"quant_method", "bitsandbytes"}};
  write_bytes(site / "left_over/config.json", config.dump());
  const Ended ended = site.call({"convert", "left_over", "--out", "full"});
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "model_note left_over: config.json has a quantization_config"));
  CHECK_FALSE(config_in(site / "full").contains("quantization_config"));
}
