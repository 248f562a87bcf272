#pragma once

#include "base/result.hpp"
#include "cli/options.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::cli {

/// Trains what a run file describes, or resumes it, as `actortrain run` does: relative paths begin
/// at the process's directory. Returns the exit code, or the error to report. Blocks.
/// REQUIRES: block_signals().
[[nodiscard]] Result<int> run_training(const RunOptions& options);

/// Configuration of a run, and the places of its keys for errors.
struct GivenConfig {
  configs::RunConfig config;
  configs::KeyPositions places;
};

/// As above, of a configuration that was read before. REQUIRES: block_signals().
[[nodiscard]] Result<int> run_given_config(const GivenConfig& given);

}  // namespace train::cli
