#pragma once

#include "cli/options.hpp"

namespace train::cli {

/// `actortrain checkpoints list|show|verify|prune|reindex|diff`. Returns the exit code; errors are
/// printed as one line on stderr. list, show, verify, diff and prune --dry-run change nothing and
/// work while the run is on; prune and reindex take the run's lock.
[[nodiscard]] int checkpoints_command(const CheckpointsOptions& options);

}  // namespace train::cli
