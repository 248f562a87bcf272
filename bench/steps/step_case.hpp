#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "bench/ranks/ranks_support.hpp"
#include "run/plan/run_plan.hpp"

// Models and batches compared by the rows of bench_step.
namespace train::bench {

/// Model and its batch, as a run file with overrides.
struct StepCase {
  std::string name;
  std::string file;  ///< In configs/; empty: a file with nothing but `published`.
  Words keys;
  std::int64_t vocabulary = 50304;
  /// Model of configs/models, or path of a config.json, instead of an architecture's keys.
  std::string published = {};
  std::string data = {};  ///< Directory of tokens; empty: random ones of the whole vocabulary.
  /// How far apart the first losses of both sides may be. State spaces are initialized as their
  /// authors do, which PyTorch's side, with one deviation for all maps, is not.
  double same_loss = 0.15;
};

[[nodiscard]] StepCase gpt2_case(std::int64_t seq_len, std::int64_t micro_batch,
                                 std::int64_t lanes);  ///< Enoki, 124 M weights, tied.
[[nodiscard]] StepCase quickstart_case();              ///< configs/quickstart.toml.
[[nodiscard]] StepCase qwen3_case();                   ///< qwen3 with 2 heads, 29 M weights.

/// Published model's shape, with fresh weights.
[[nodiscard]] StepCase published_case(const std::string& model, std::int64_t vocabulary,
                                      std::int64_t seq_len);

/// Path of the case's run file; written on first use if it has none.
[[nodiscard]] std::string file_of(const Workplace& place, const StepCase& one);

/// Keys of the case: random tokens of its whole vocabulary in `place` (written on first use), and a
/// run that only trains: no evaluation, samples or checkpoint, z-loss off, AdamW.
[[nodiscard]] Words keys_of(const Workplace& place, const StepCase& one);

/// Plan of the case's run file, with every rule applied. Throws std::runtime_error.
[[nodiscard]] run::RunPlan plan_of_case(const Workplace& place, const StepCase& one);

/// Path of the training tokens written by keys_of().
[[nodiscard]] std::filesystem::path tokens_of(const Workplace& place, const StepCase& one);

}  // namespace train::bench
