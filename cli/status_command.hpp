#pragma once

#include "cli/options.hpp"

namespace train::cli {

/// Prints how a run is, from outside of it. Blocking. Exit codes as everywhere: 2 where there is no
/// run or no status.
[[nodiscard]] int status_command(const StatusOptions& options);

}  // namespace train::cli
