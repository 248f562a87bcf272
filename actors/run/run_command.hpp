#pragma once

#include "actors/cli/options.hpp"

namespace train::actors {

/// `actortrain run`: trains to the end, or until a signal. Returns the exit code. Errors are
/// printed as one line on stderr. REQUIRES: SIGINT, SIGTERM and SIGUSR1 are blocked in every
/// thread.
[[nodiscard]] int run_command(const cli::RunOptions& options);

/// `actortrain generate`: continues a prompt with the newest (or named) checkpoint of a run.
[[nodiscard]] int generate_command(const cli::GenerateOptions& options);

/// `actortrain data prepare`.
[[nodiscard]] int prepare_command(const cli::PrepareOptions& options);

}  // namespace train::actors
