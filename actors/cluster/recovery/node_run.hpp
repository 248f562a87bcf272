#pragma once

#include <cstdint>
#include <filesystem>

#include "actors/cluster/network/endpoint.hpp"
#include "actors/cluster/network/worker_process.hpp"
#include "run/memory/node_memory.hpp"
#include "run/plan/node_position.hpp"
#include "run/plan/run_plan.hpp"

// Work of every node's launcher for its ranks, and of the launchers of nodes other than the head's.
namespace train::actors {

/// Starts the workers of this node, out of `ranks` of the run in `root`; they connect to the head
/// at `endpoint` and write to `memory`.
void start_workers(WorkerProcesses& workers, const run::NodePosition& position, std::int64_t ranks,
                   const Endpoint& endpoint, const std::filesystem::path& root,
                   const run::NodeMemory& memory);

/// On a node other than the head's: starts this node's ranks, which follow the head, for one
/// generation after the other, until the head or the run ends. Returns the exit code.
[[nodiscard]] int run_node(run::RunPlan plan, const run::NodePosition& position);

}  // namespace train::actors
