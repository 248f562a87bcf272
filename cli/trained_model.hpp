#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/reader.hpp"
#include "configs/run_config.hpp"
#include "engine/rank/rank_options.hpp"
#include "kernels/device/buffer.hpp"

namespace train::cli {

/// Weights of a committed checkpoint, and what they belong to.
struct TrainedModel {
  configs::RunConfig config;
  engine::RankOptions options;
  std::vector<kernels::Buffer> units;  ///< Flat fp32 weights of each unit.
  std::int64_t step = 0;

  [[nodiscard]] std::vector<const float*> weights() const;
};

/// The configuration that `run` was made with. Errors (user): not a run directory.
[[nodiscard]] Result<configs::RunConfig> load_run_config(const std::filesystem::path& run);

/// The checkpoint of `step`, or the newest whole one, found without changing anything. Blocking.
/// Errors: (user) none yet, no such step (names those there are); (failure) it is damaged.
[[nodiscard]] Result<checkpoint::FoundCheckpoint> find_checkpoint(
    const std::filesystem::path& checkpoints, std::optional<std::int64_t> step);

/// Reads the weights alone. Blocking.
[[nodiscard]] Result<TrainedModel> load_model(const std::filesystem::path& run,
                                              std::optional<std::int64_t> step);

}  // namespace train::cli
