#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "actors/head/run_plan.hpp"
#include "bench/ranks_support.hpp"

// The models and batches that the rows of bench_step compare.
namespace train::bench {

/// A model and its batch, as a run file and overrides of it.
struct StepCase {
  std::string name;
  std::string file;  ///< In configs/; empty: one that has nothing but `published`.
  Words keys;
  std::int64_t vocabulary = 50304;
  /// A model of configs/models, or the path of a config.json, instead of an architecture's keys.
  std::string published = {};
  std::string data = {};  ///< A directory of tokens; empty: random ones of the whole vocabulary.
};

[[nodiscard]] StepCase gpt2_case(std::int64_t seq_len, std::int64_t micro_batch,
                                 std::int64_t lanes);  ///< Enoki, 124 M weights, tied.
[[nodiscard]] StepCase quickstart_case();              ///< configs/quickstart.toml.
[[nodiscard]] StepCase qwen3_case();                   ///< qwen3 with 2 heads, 29 M weights.

/// Fresh weights of a published model's shape.
[[nodiscard]] StepCase published_case(const std::string& model, std::int64_t vocabulary,
                                      std::int64_t seq_len);

/// Where the case's run file is; written on first use if it has none.
[[nodiscard]] std::string file_of(const Workplace& place, const StepCase& one);

/// The keys of the case, of random tokens of its whole vocabulary in `place` (written on first
/// use), and of a run that does nothing but train: no evaluation, samples or checkpoint, z-loss
/// off, AdamW.
[[nodiscard]] Words keys_of(const Workplace& place, const StepCase& one);

/// What the case's run file says, with every rule applied. Throws std::runtime_error.
[[nodiscard]] actors::RunPlan plan_of_case(const Workplace& place, const StepCase& one);

/// Where keys_of() put the training tokens.
[[nodiscard]] std::filesystem::path tokens_of(const Workplace& place, const StepCase& one);

}  // namespace train::bench
