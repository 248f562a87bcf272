// A published model in and out, with the real program: trained from its directory, exported,
// converted, described.

#include "storage/weight_files/weight_directory.hpp"
#include "tests/integration/sites/held_runs.hpp"
#include "tests/integration/sites/published_site.hpp"

using namespace train;
using namespace train::test;

namespace {

/// One layer of three sees everything, at other frequencies; queries share one head of keys.
constexpr const char* kTinyGemma3 = R"({"model_type": "gemma3_text", "vocab_size": 300,
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 6, "num_attention_heads": 4,
  "num_key_value_heads": 1, "head_dim": 12, "max_position_embeddings": 64, "sliding_window": 7,
  "query_pre_attn_scalar": 20, "rope_theta": 5000.0, "rope_local_base_freq": 50.0,
  "hidden_activation": "gelu_pytorch_tanh",
  "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                  "sliding_attention", "sliding_attention", "full_attention"]})";

nlohmann::json json_of(const fs::path& file) {
  return nlohmann::json::parse(read_bytes(file), nullptr, false);
}

/// Bytes of every tensor, by name.
std::map<std::string, std::vector<float>> floats_of(const fs::path& directory) {
  const auto opened = storage::WeightDirectory::open(directory);
  REQUIRE(opened.ok());
  std::map<std::string, std::vector<float>> tensors;
  for (const std::string& name : opened->names()) {
    const storage::TensorEntry& entry = *opened->find(name);
    std::size_t count = 1;
    for (const std::int64_t dimension : entry.shape) {
      count *= static_cast<std::size_t>(dimension);
    }
    std::vector<float>& values = tensors[name];
    values.resize(count);
    REQUIRE(opened->read_floats(name, 0, values).ok());
  }
  return tensors;
}

std::string weights_digest(const fs::path& run, std::int64_t step) {
  const auto manifest =
      checkpoint::read_manifest(run / "checkpoints" / checkpoint::checkpoint_name(step));
  REQUIRE(manifest.ok());
  return manifest->fields.weights_digest;
}

}  // namespace

TEST_CASE("published: an export is what transformers reads", "[integration][published]") {
  const RunSite& site = published_site();
  const auto config = json_of(site / "model/config.json");
  CHECK(config.at("architectures") == nlohmann::json::array({"Qwen3ForCausalLM"}));
  CHECK(config.at("torch_dtype") == "bfloat16");
  CHECK(config.at("rope_theta") == 5000.0);
  CHECK(config.at("rope_scaling").at("factor") == 2.0);
  CHECK(config.at("rope_parameters") ==
        nlohmann::json({{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5000.0}}));
  CHECK_FALSE(config.contains("dtype"));
  CHECK(read_bytes(site / "model/tokenizer.json") == "{\"carried\": \"along\"}");
  const auto tensors = floats_of(site / "model");
  CHECK(tensors.contains("model.layers.1.self_attn.q_norm.weight"));
  CHECK_FALSE(tensors.contains("lm_head.weight"));  // it is the embedding
}

TEST_CASE("published: `run` says that it trains without dropout, others need not know",
          "[integration][published]") {
  const RunSite& site = published_site();
  fs::copy(site / "model", site / "dropped", fs::copy_options::recursive);
  nlohmann::json config = json_of(site / "dropped/config.json");
  config.update({{"attention_dropout", 0.1}, {"classifier_dropout", 0.2}, {"logit_scale", 0.5}});
  write_bytes(site / "dropped/config.json", config.dump());
  const Ended described = site.call({"describe", "dropped"});
  CHECK(described.exit_code == 0);
  CHECK(has(described.err, "config_not_read dropped/config.json: logit_scale; "));
  CHECK_FALSE(has(described.err, "dropout"));
  const Ended ended =
      site.start_run({"model.from=dropped", "run.name=dropped", "run.steps=2"})->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "no_dropout dropped: attention_dropout 0.1, and this program trains"));
  CHECK(has(ended.err, "config_not_read dropped: logit_scale; "));
  CHECK_FALSE(has(ended.err, "classifier_dropout"));
}

TEST_CASE("published: converting keeps every bit of the same type, in any number of files",
          "[integration][published][WF-1]") {
  const RunSite& site = published_site();
  const Ended ended = site.call({"convert", "model", "--out", "again", "--max-shard-size", "20kB"});
  check_mistake(site, {"convert", "model", "--out", "again", "--max-shard-size", "20kB"},
                {"--max-shard-size", "wants a size"});
  CHECK(ended.exit_code == 2);
  const Ended split = site.call({"convert", "model", "--out", "split", "--max-shard-size", "20KB"});
  INFO(split.err);
  REQUIRE(split.exit_code == 0);
  CHECK(fs::exists(site / "split/model.safetensors.index.json"));
  CHECK(fs::exists(site / "split/tokenizer.json"));
  REQUIRE(site.call({"convert", "split", "--out", "whole"}).exit_code == 0);
  CHECK(read_bytes(site / "whole/model.safetensors") ==
        read_bytes(site / "model/model.safetensors"));
  REQUIRE(site.call({"convert", "split", "--out", "wide", "--dtype", "fp32"}).exit_code == 0);
  CHECK(floats_of(site / "wide") == floats_of(site / "model"));
  check_mistake(site, {"convert", "nowhere", "--out", "x"}, {"nowhere", "actortrain describe"});
  check_mistake(site, {"convert", "model", "--out", "split"}, {"split already exists"});
  check_mistake(site, {"convert", "model", "--out", "x", "--dtype", "int8"}, {"--dtype"});
}

TEST_CASE("published: training from a directory gives the same bits on any number of ranks",
          "[integration][published][EN-1]") {
  const RunSite& site = published_site();
  site.train({"run.name=one", "run.steps=6", "checkpoint.interval_steps=3"});
  site.train(rank_keys(2, "full", {"run.name=two", "run.steps=6", "checkpoint.interval_steps=3"}));
  for (const std::int64_t step : {3, 6}) {
    CHECK(weights_digest(site.run("one"), step) == weights_digest(site.run("two"), step));
  }
  // The first loss is that of the weights in the directory, not of fresh ones.
  const auto losses = [&](const std::string& run) {
    std::vector<double> values;
    for (const nlohmann::json& entry : metrics_of(site.run(run))) {
      if (entry.contains("loss")) {
        values.push_back(entry.at("loss"));
      }
    }
    return values;
  };
  const double halfway = (first_of(losses("fresh")) + last_of(losses("fresh"))) / 2;
  CHECK(last_of(losses("fresh")) < halfway);
  CHECK(first_of(losses("one")) < halfway);
}

TEST_CASE("published: windows, two ropes and a tied head outlive kill -9, to the same bits",
          "[integration][published][recovery][P1]") {
  const RunSite site;
  write_bytes(site / "gemma.json", kTinyGemma3);
  write_run_file(site, "config = \"gemma.json\"");
  const Words keys = {"run.steps=60", "eval.interval_steps=0", "checkpoint.interval_steps=20",
                      "recovery.snapshot_interval_steps=4"};
  site.train(joined(keys, {"run.name=alone"}));
  // Six blocks, one lane for rank 1: it stands in step 10.
  const auto launcher =
      start_held(site, "1", 6 * 9 + 1, rank_keys(3, "full", joined(keys, {"run.name=killed"})));
  wait_for_step(site.run("killed"), *launcher, 7);
  kill_held(site, site.run("killed"), *launcher, 3);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "rank_lost "));
  CHECK(has(ended.err, "respawned generation="));
  CHECK(weights_digest(site.run("alone"), 60) == weights_digest(site.run("killed"), 60));
}

TEST_CASE("published: a run goes on when the directory it began with is gone",
          "[integration][published]") {
  const RunSite& site = published_site();
  fs::copy(site / "model", site / "passing", fs::copy_options::recursive);
  const Words keys = {"model.from=passing", "run.steps=6", "checkpoint.interval_steps=3"};
  site.train(joined(keys, {"run.name=unbroken"}));
  const Ended stopped =
      site.start_run(joined(keys, {"run.name=broken", "run.steps_per_job=3"}))->wait();
  CHECK(stopped.exit_code == 75);
  fs::remove_all(site / "passing");
  site.train(joined(keys, {"run.name=broken"}));
  CHECK(weights_digest(site.run("broken"), 6) == weights_digest(site.run("unbroken"), 6));
  const Ended exported = site.call({"export", "runs/broken", "--out", "of_broken"});
  INFO(exported.err);
  CHECK(exported.exit_code == 0);
  // A config.json that is not what the run began with is no place to go on from.
  fs::create_directory(site / "passing");
  std::string other = kTinyQwen3;
  other.replace(other.find("5000.0"), 6, "6000.0");
  write_bytes(site / "passing/config.json", other);
  fs::copy(site / "model/model.safetensors", site / "passing/model.safetensors");
  const Ended refused = site.start_run(joined(keys, {"run.name=broken", "run.steps=9"}))->wait();
  CHECK(refused.exit_code == 2);
  CHECK(has(refused.err, "differs from what this run began with"));
}

TEST_CASE("published: describe", "[integration][published]") {
  const RunSite& site = published_site();
  const Ended shapes = site.call({"describe"});
  CHECK(shapes.exit_code == 0);
  CHECK(has(shapes.out, "smollm2-135m"));
  CHECK(has(shapes.out, "134515008 parameters"));
  const Ended gemma = site.call({"describe", "gemma-3-270m"});
  CHECK(has(gemma.out, "layers             0 to 4, 6 to 10, 12 to 16: attention, then MLP"));
  CHECK(has(gemma.out, "268098176"));
  CHECK(has(site.call({"describe", "model"}).out, "qwen3"));
  CHECK(has(site.call({"describe", "tiny.toml"}).out, "qwen3"));
  check_mistake(site, {"describe", "no-such-model"}, {"no-such-model", "actortrain describe"});
}
