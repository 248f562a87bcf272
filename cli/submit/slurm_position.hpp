#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.hpp"
#include "run/plan/node_position.hpp"

// Position of this process among a job's launchers, according to Slurm.
namespace train::cli {

using Environment = std::map<std::string, std::string>;

/// Environment of this process.
[[nodiscard]] Environment process_environment();

/// `nodes` is parallel.nodes. One node needs nothing from the environment; more need Slurm (a step
/// with one task per node). Pure. Errors (user): name the variable, its value and the fix.
[[nodiscard]] Result<run::NodePosition> find_position(std::int64_t nodes,
                                                      const Environment& environment);

}  // namespace train::cli
