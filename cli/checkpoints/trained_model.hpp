#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "kernels/device/buffer.hpp"
#include "run/prepared_run.hpp"

namespace train::cli {

/// Weights of a committed checkpoint, with their model and run.
struct TrainedModel {
  configs::RunConfig config;
  engine::RankOptions options;
  std::vector<kernels::Buffer> units;  ///< Flat fp32 weights of each unit.
};

/// Reads only the weights, of `step`, of kBestStep, or of the newest checkpoint; `average`: their
/// running average, where a weight has one. Blocking. Errors: those of check_average(),
/// find_checkpoint() and restore().
[[nodiscard]] Result<TrainedModel> load_model(const std::filesystem::path& run,
                                              std::optional<std::int64_t> step,
                                              bool average = false);

/// Reads a published model's weights from its directory, for texts of at most `context` tokens.
/// Blocking. Errors: those of spec_from_config() and PublishedWeights::open.
[[nodiscard]] Result<TrainedModel> load_model_directory(const std::filesystem::path& directory,
                                                        std::int64_t context);

/// Prints a sample from the run's newest checkpoint after run.sample_prompt; no-op if no sample is
/// requested or the tokenizer is unknown. Blocking.
void show_sample(const run::PreparedRun& run);

}  // namespace train::cli
