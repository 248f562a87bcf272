#pragma once

#include "tests/integration/sites/rank_runs.hpp"

// A directory of a published model, small, and runs that read it.
namespace train::test {

inline constexpr const char* kTinyQwen3 = R"({"model_type": "qwen3", "vocab_size": 300,
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
  "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
  "tie_word_embeddings": true, "dtype": "bfloat16"})";

/// Runs of a model whose config.json is tiny.json; `model_key` is the [model] section.
inline void write_run_file(const RunSite& site, const std::string& model_key) {
  std::string text = read_bytes(site / "tiny.toml");
  const std::size_t begin = text.find("[model]");
  const std::size_t end = text.find("[data]");
  text.replace(begin, end - begin, "[model]\n" + model_key + "\n");
  write_bytes(site / "tiny.toml", text);
}

/// A directory of a model, made by training it from fresh weights for a few steps.
inline const RunSite& published_site() {
  static const RunSite site;
  static const bool made = [] {
    write_bytes(site / "tiny.json", kTinyQwen3);
    write_run_file(site, "config = \"tiny.json\"");
    site.train({"run.name=fresh", "run.steps=20", "schedule.warmup_steps=1"});
    write_bytes(site / "runs/fresh/model/tokenizer.json", "{\"carried\": \"along\"}");
    const Ended ended =
        site.call({"export", "runs/fresh", "--format", "hf", "--dtype", "bf16", "--out", "model"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    write_run_file(site, "from = \"model\"");
    return true;
  }();
  REQUIRE(made);
  return site;
}

}  // namespace train::test
