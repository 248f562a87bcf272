#pragma once

#include <cstdint>
#include <filesystem>

#include "actors/cluster/network/endpoint.hpp"
#include "actors/cluster/network/worker_process.hpp"
#include "actors/cluster/nodes/node_position.hpp"
#include "actors/cluster/recovery/node_memory.hpp"
#include "actors/head/run_plan.hpp"

// What the launcher of any node does for its ranks, and all that the launcher of a node does that
// is not the head's.
namespace train::actors {

/// Starts the workers of this node, of `ranks` of the run in `root`; they find the head at
/// `endpoint` and write to `memory`.
void start_workers(WorkerProcesses& workers, const NodePosition& position, std::int64_t ranks,
                   const Endpoint& endpoint, const std::filesystem::path& root,
                   const NodeMemory& memory);

/// On a node that is not the head's: starts this node's ranks, which follow the head, and again for
/// each further generation of them, until the head or the run is at its end. Returns the exit code.
[[nodiscard]] int run_node(RunPlan plan, const NodePosition& position);

}  // namespace train::actors
