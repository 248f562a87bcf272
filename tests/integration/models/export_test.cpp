// `actortrain export` with the real program.
#include <cstdio>
#include <set>

#include "configs/load_config.hpp"
#include "run/plan/run_plan.hpp"
#include "tests/integration/sites/rank_runs.hpp"
#include "tests/support/checkpoints/whole_safetensors.hpp"

using namespace train;
using namespace train::test;

namespace {

/// A run of two ranks that split everything, one of one rank, and one whose head is the embedding.
const RunSite& trained_site() {
  static const RunSite site;
  static const bool trained = [] {
    site.train(rank_keys(2, "full", {"run.name=two"}));
    site.train({"run.name=one"});
    site.train({"run.name=tied", "model.tie_embeddings=true", "run.steps=6"});
    return true;
  }();
  REQUIRE(trained);
  return site;
}

Ended exported(const std::string& run, const std::string& out, Words more = {}) {
  Words words = {"export", "runs/" + run, "--out", out};
  words.insert(words.end(), more.begin(), more.end());
  Ended ended = trained_site().call(std::move(words));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return ended;
}

/// The model's parameters, as the engine lists them.
Words parameter_names(const fs::path& run) {
  const auto config = configs::load_config((run / "config.toml").string());
  REQUIRE(config);
  const auto options = run::engine_options(*config, 0);
  REQUIRE(options);
  Words names;
  for (const auto& unit : engine::describe_units(options->model)) {
    for (const auto& parameter : unit.parameters) {
      names.push_back(parameter.name);
    }
  }
  return names;
}

/// Runs the check in Python; its exit code, 77 where a package it needs is missing.
int checked_by_python(Words words) {
  words.insert(words.begin(), ACTORTRAIN_SOURCE_DIR "/tests/reference/models/export_check.py");
  const char* chosen = std::getenv("ACTORTRAIN_TEST_PYTHON");
  words.insert(words.begin(), {"/usr/bin/env", chosen != nullptr ? chosen : "python3"});
  const Ended ended = Process(std::move(words), trained_site().path()).wait();
  INFO(ended.out << ended.err);
  if (ended.exit_code == 77 || ended.exit_code == 127) {
    std::fprintf(stderr, "export_check.py: %s%s", ended.out.c_str(), ended.err.c_str());
    return 77;
  }
  std::fputs(ended.out.c_str(), stderr);
  return ended.exit_code;
}

}  // namespace

TEST_CASE("export: names and number of tensors are the model's", "[integration][.full][export]") {
  const RunSite& site = trained_site();
  const Ended ended = exported("two", "plain");
  CHECK(lines_of(ended.out).size() == 1);
  const Words wanted = parameter_names(site.run("two"));
  CHECK(has(ended.out, fmt::format("exported step=20 out=plain dtype=fp32 files=1 tensors={} "
                                   "compared={}",
                                   wanted.size(), wanted.size())));
  CHECK(names_in(site / "plain") == Words{"config.json", "model.safetensors"});
  CHECK(stored_names(site / "plain/model.safetensors") == wanted);
  CHECK(std::find(wanted.begin(), wanted.end(), "lm_head.weight") != wanted.end());
  // One matrix, stored once.
  (void)exported("tied", "tied");
  Words tied = stored_names(site / "tied/model.safetensors");
  CHECK(std::find(tied.begin(), tied.end(), "lm_head.weight") == tied.end());
  CHECK(tied.size() == wanted.size() - 1);
}

TEST_CASE("export: the ranks of a run leave no trace in it", "[integration][.full][export]") {
  (void)exported("two", "of_two", {"--dtype", "bf16", "--max-file-bytes", "2KB"});
  (void)exported("one", "of_one", {"--dtype", "bf16", "--max-file-bytes", "2KB"});
  const RunSite& site = trained_site();
  const auto files = names_in(site / "of_two");
  CHECK(files.size() > 4);
  CHECK(files == names_in(site / "of_one"));
  for (const std::string& file : files) {
    if (file != "config.json") {  // names the run
      CHECK(read_bytes(site / "of_two" / file) == read_bytes(site / "of_one" / file));
    }
  }
}

TEST_CASE("export: config.json says what the weights are", "[integration][.full][export]") {
  (void)exported("one", "early", {"--step", "10"});
  const auto config = nlohmann::json::parse(read_bytes(trained_site() / "early/config.json"));
  CHECK(config.at("model_type") == "actortrain-enoki");
  CHECK(config.at("num_hidden_layers") == 2);
  CHECK(config.at("num_attention_heads") == 2);
  CHECK(config.at("head_dim") == 8);
  CHECK(config.at("hidden_size") == 16);
  CHECK(config.at("intermediate_size") == 64);
  CHECK(config.at("vocab_size") == 320);
  CHECK(config.at("max_position_embeddings") == 32);
  CHECK(config.at("tie_word_embeddings") == false);
  CHECK(config.at("torch_dtype") == "float32");
  CHECK(config.at("tokenizer").at("name") == "bytes");
  CHECK(config.at("tokenizer").at("vocab_size") == 257);
  CHECK(config.at("actortrain").at("step") == 10);
  CHECK(config.at("actortrain").at("weights_digest").get<std::string>().size() > 10);
}

TEST_CASE("export: mistakes are one line and change nothing", "[integration][export]") {
  const RunSite& site = trained_site();
  check_mistake(site, {"export", "runs/none", "--out", "x"}, {"runs/none", "no such directory"});
  check_mistake(site, {"export", "runs/one", "--out", "x", "--step", "7"}, {"--step 7", "10, 20"});
  check_mistake(site, {"export", "runs/one"}, {"--out"});
  check_mistake(site, {"export", "runs/one", "--out", ""}, {"--out is empty"});
  check_mistake(site, {"export", "runs/one", "--out", "x", "--dtype", "fp8"},
                {"fp32, bf16, fp16, q8_0 or q4_k_m"});
  for (const char* size : {"0", "-1", "5", "500000", "5XB", "GB", "99999999999GiB", "1.5GB"}) {
    check_mistake(site, {"export", "runs/one", "--out", "x", "--max-file-bytes", size},
                  {"--max-shard-size wants a size", size});
  }
  check_mistake(site, {"export", "runs/one", "--out", "runs"}, {"runs", "already exists"});
  check_mistake(site, {"export", "runs/one", "--out", "tiny.toml"}, {"already exists"});
}

TEST_CASE("export: other people's programs read the same weights", "[integration][.full][export]") {
  const RunSite& site = trained_site();
  (void)exported("two", "py32");
  const Words prompt = {"generate", "runs/two", "--prompt",      "the river ",
                        "--tokens", "48",       "--temperature", "0"};
  const Ended text = site.call(prompt);
  REQUIRE(text.exit_code == 0);
  write_bytes(site / "greedy.txt", text.out);
  const int code =
      checked_by_python({"runs/two", "py32", "--continues", "the river ", "greedy.txt"});
  if (code == 77) {
    return;
  }
  REQUIRE(code == 0);
  (void)exported("two", "py16", {"--dtype", "bf16", "--max-file-bytes", "4KiB"});
  CHECK(checked_by_python({"runs/two", "py16"}) == 0);
  (void)exported("tied", "pytied", {"--max-file-bytes", "10KB"});
  CHECK(checked_by_python({"runs/tied", "pytied"}) == 0);
  const fs::path weights = site / "py32/model.safetensors";
  flip_byte(weights, fs::file_size(weights) - 1);
  CHECK(checked_by_python({"runs/two", "py32"}) == 1);
}
