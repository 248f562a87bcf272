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

/// Whether the launcher could let its ranks in at the interface and the port of `parallel`; asked
/// before anything of a run is written. Errors (user): name the key and what there is instead.
[[nodiscard]] Status check_network(const configs::ParallelSection& parallel);

/// All ranks of a run in processes of their own, generation after generation: those of this node,
/// which this process starts and watches, and those of the other nodes, by way of their launchers.
///
/// Threading: one thread. All calls block. Borrows the run.
class ProcessRanks {
 public:
  explicit ProcessRanks(PreparedRun& run);
  /// Launchers that wait for a generation to begin are told to end.
  ~ProcessRanks();

  /// Before run(), where there are other nodes: waits for their launchers, at most
  /// recovery.start_wait_s (of the first generation) or node_wait_s, and until a signal; within
  /// that time this node's own network may come back, too. Errors, of the first generation alone:
  /// those of HeadNetwork::open().
  [[nodiscard]] Result<Membership> meet();

  /// After meet(): `members` are PreparedRun::members from here on. If they are the same, every
  /// node gets what it lacks of the snapshots in memory to resume from, if the run does. Else the
  /// run has been made one of so many, and each takes its position in it. Errors: not all get it,
  /// or have room for it.
  [[nodiscard]] Status place(std::span<const std::int64_t> members);

  /// The launchers of the other nodes join the next generation, or end, if there is a network to
  /// tell them. Blocks until those that are to end have, a few seconds at most.
  void end(const GenerationOver& over);

  /// Runs one generation until it is over. None of its processes on this node is left on return.
  /// Errors: of a run on one node, those of HeadNetwork::open().
  [[nodiscard]] Result<RunFinished> run(std::shared_ptr<RunReport> report);

 private:
  PreparedRun& run_;
  // Of this generation. The head outlives its run() until the launchers know what follows: what its
  // disk still does takes its time.
  std::unique_ptr<HeadNetwork> network_;
  std::unique_ptr<GenerationHead> head_;
};

}  // namespace train::actors
