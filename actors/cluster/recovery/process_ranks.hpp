#pragma once

#include <memory>
#include <optional>
#include <span>

#include "actors/cluster/recovery/generations.hpp"
#include "actors/cluster/recovery/head_table.hpp"
#include "actors/head/prepared_run.hpp"
#include "actors/messages/event_messages.hpp"

namespace train::actors {

class GenerationHead;
class HeadNetwork;

/// Checks, before anything of a run is written, that the launcher can listen on the interface and
/// port of `parallel`. Errors (user): name the key and the available interfaces.
[[nodiscard]] Status check_network(const configs::ParallelSection& parallel);

/// All ranks of a run in processes of their own, over all generations: those of this node, which
/// this process starts and watches, and those of other nodes, through their launchers.
///
/// Threading: one thread. All calls block. Borrows the run.
class ProcessRanks {
 public:
  explicit ProcessRanks(PreparedRun& run);
  /// Tells launchers that wait for a generation to end.
  ~ProcessRanks();

  /// Before run(), with other nodes: waits for their launchers, at most recovery.start_wait_s
  /// (first generation) or node_wait_s, and until a signal; within that time this node's own
  /// network may recover, too. Errors, only in the first generation: those of HeadNetwork::open().
  [[nodiscard]] Result<Membership> meet();

  /// After meet(): sets PreparedRun::members to `members`. If they are unchanged, every node gets
  /// the snapshots it lacks, if the run resumes from them. Otherwise the run has been set up for
  /// that number of nodes, and each takes its position. Errors: a node did not get them, or lacks
  /// room.
  [[nodiscard]] Status place(std::span<const std::int64_t> members);

  /// Makes the launchers of the other nodes join the next generation, or end, if there is a network
  /// to tell them. Blocks until those that are to end have, a few seconds at most.
  void end(const GenerationOver& over);

  /// Runs one generation until it is over. On return none of its processes is left on this node.
  /// Errors: for a run on one node, those of HeadNetwork::open().
  [[nodiscard]] Result<RunFinished> run(std::shared_ptr<RunReport> report);

 private:
  PreparedRun& run_;
  // Network of this generation. It outlives run() until the launchers know what follows: pending
  // disk work takes time.
  std::unique_ptr<HeadNetwork> network_;
  std::unique_ptr<GenerationHead> head_;
};

}  // namespace train::actors
