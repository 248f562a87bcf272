#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "actors/cluster/network/node_position.hpp"
#include "actors/cluster/network/worker_process.hpp"
#include "actors/cluster/recovery/node_memory.hpp"
#include "actors/head/run_plan.hpp"

// How the head's end reaches launchers of other nodes that were not in touch with it: one that
// comes late, or finds that the head had nothing to do. It is a file of the run's control
// directory, which all nodes share, and holds for one start of the launchers alone
// (NodePosition::start).
// What the launcher of any node does for its ranks, and all that the launcher of a node does that
// is not the head's.
namespace train::actors {

/// At the head's start, before any other launcher can take an older word for its own. Blocks.
void forget_exit_record(const std::filesystem::path& root);

/// At the head's end, which is that of the run in `root`. Blocks. What cannot be written is a
/// warning: the others then wait for as long as they do for a head that is lost.
void leave_exit_record(const std::filesystem::path& root, const std::string& start, int exit_code);

/// The exit code that the head of `start` has left; none: none yet, or one of another start.
/// Blocks.
[[nodiscard]] std::optional<int> exit_record(const std::filesystem::path& root,
                                             const std::string& start);

/// Where the head leaves what nodes and workers need to find it, of the run in `root`.
[[nodiscard]] std::filesystem::path control_directory(const std::filesystem::path& root);
[[nodiscard]] std::filesystem::path endpoint_file(const std::filesystem::path& root);

/// Starts the workers of this node, of `ranks` of the run in `root`; they find the head at
/// `endpoint` and write to `memory`.
void start_workers(WorkerProcesses& workers, const NodePosition& position, std::int64_t ranks,
                   const Endpoint& endpoint, const std::filesystem::path& root,
                   const NodeMemory& memory);

/// On a node that is not the head's: starts this node's ranks, which follow the head, and again for
/// each further generation of them, until the head or the run is at its end. Returns the exit code.
[[nodiscard]] int run_node(RunPlan plan, const NodePosition& position);

}  // namespace train::actors
