#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "actors/cluster/nodes/node_position.hpp"
#include "base/result.hpp"

// Which of a job's launchers this process is, as Slurm tells it.
namespace train::cli {

using Environment = std::map<std::string, std::string>;

/// Of this process.
[[nodiscard]] Environment process_environment();

/// `nodes` is parallel.nodes. One node needs nothing of the environment; more need Slurm (a step
/// with one task per node). Pure.
/// Errors (user): name the variable, what it says and what to do.
[[nodiscard]] Result<actors::NodePosition> find_position(std::int64_t nodes,
                                                         const Environment& environment);

}  // namespace train::cli
