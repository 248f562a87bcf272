#pragma once

#include <cstdint>

#include "checkpoint/save/retention.hpp"
#include "configs/run_config.hpp"

namespace train::run {

/// Rule for the old checkpoints of a run. One that never evaluates has no best checkpoint.
[[nodiscard]] checkpoint::RetentionRule retention_rule(const configs::RunConfig& config);

/// Largest number of checkpoints that lie in the run's directory at one time, up to `run.steps`:
/// those that the rule keeps, and the one under construction. An upper bound: checkpoints that two
/// parts of the rule keep count twice.
[[nodiscard]] std::int64_t most_checkpoints(const configs::RunConfig& config);

}  // namespace train::run
