#pragma once

#include "base/result.hpp"
#include "cli/options.hpp"

namespace train::cli {

/// Trains what a run file describes, or resumes it, as `actortrain run` does: relative paths begin
/// at the process's directory. Returns the exit code, or the error to report. Blocks.
/// REQUIRES: block_signals().
[[nodiscard]] Result<int> run_training(const RunOptions& options);

}  // namespace train::cli
