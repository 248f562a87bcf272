#pragma once

#include "actors/cli/options.hpp"

namespace train::actors {

/// Prints how a run is, from outside of it. Blocking. Exit codes as everywhere: 2 where there is no
/// run or no status.
[[nodiscard]] int status_command(const cli::StatusOptions& options);

}  // namespace train::actors
