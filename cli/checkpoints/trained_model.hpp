#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/head/prepared_run.hpp"
#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "kernels/device/buffer.hpp"

namespace train::cli {

/// Weights of a committed checkpoint, and what they belong to.
struct TrainedModel {
  configs::RunConfig config;
  engine::RankOptions options;
  std::vector<kernels::Buffer> units;  ///< Flat fp32 weights of each unit.
};

/// Reads the weights alone, of `step` or the newest. Blocking.
[[nodiscard]] Result<TrainedModel> load_model(const std::filesystem::path& run,
                                              std::optional<std::int64_t> step);

/// Reads a published model's weights from its directory, to be continued over texts of `context`
/// tokens at most. Blocking. Errors: those of spec_from_config() and PublishedWeights::open.
[[nodiscard]] Result<TrainedModel> load_model_directory(const std::filesystem::path& directory,
                                                        std::int64_t context);

/// The `bytes` tokenizer for prompts: one token per byte. An empty text is one end-of-text token,
/// so that there is always something to continue.
[[nodiscard]] std::vector<std::int32_t> encode_bytes(std::string_view text);

/// A token as it is shown: its byte; end-of-text as a line break; control characters as '?'.
[[nodiscard]] std::string show_byte(std::int32_t token);

/// Prints what the trained model writes after run.sample_prompt, from the run's newest checkpoint;
/// nothing if no sample is asked for or nobody knows the tokens. Blocking.
void show_sample(const actors::PreparedRun& run);

}  // namespace train::cli
