#pragma once

#include <memory>
#include <optional>
#include <span>

#include "actors/cluster/recovery/generations.hpp"
#include "actors/cluster/recovery/head_table.hpp"
#include "actors/head/prepared_run.hpp"
#include "actors/messages/event_messages.hpp"

namespace train::actors {

class HeadNetwork;

/// Whether the launcher could let its ranks in at the interface and the port of `parallel`; asked
/// before anything of a run is written. Errors (user): name the key and what there is instead.
[[nodiscard]] Status check_network(const configs::ParallelSection& parallel);

/// All ranks of a run in processes of their own, generation after generation: those of this node,
/// which this process starts and watches, and those of the other nodes, by way of their launchers.
///
/// Threading: one thread. All calls block.
class ProcessRanks {
 public:
  ProcessRanks();
  /// Launchers that wait for a generation to begin are told to end.
  ~ProcessRanks();

  /// Before run() of a generation after the first: waits for the launchers of the other nodes, at
  /// most recovery.node_wait_s and until a signal; within that time this node's own network may
  /// come back, too. Errors, of the first generation alone: those of HeadNetwork::open().
  [[nodiscard]] Result<Membership> meet(const PreparedRun& run);

  /// After meet() of all: every node gets what it lacks of the snapshots in memory to resume from.
  /// Errors: not all do. Nothing if `run` does not start from memory.
  [[nodiscard]] Status restore(PreparedRun& run);

  /// After meet() of fewer or others: these nodes are all from here on. `run` has been made one of
  /// so many, and each takes its position in it. `left`: the positions until now of those that took
  /// part; `returned`: the others, as Membership has them. Errors: not all have room for what `run`
  /// resumes from.
  [[nodiscard]] Status change_members(PreparedRun& run, std::span<const std::int64_t> left,
                                      std::span<const std::int64_t> returned);

  /// What the launchers were told to follow the generation that run() has run; none: it did not
  /// come to its ranks.
  [[nodiscard]] const std::optional<HeadStep>& after() const { return after_; }

  /// The generation runs without other processes: nobody is to come any more.
  void close();

  /// Runs one generation until it is over. None of its processes on this node is left on return.
  /// Errors: what keeps the run from starting (port taken, another version on a node, a rank
  /// without memory); the exit code is the error's.
  [[nodiscard]] Result<RunFinished> run(PreparedRun& run, std::shared_ptr<RunReport> report);

 private:
  std::unique_ptr<HeadNetwork> network_;  // open, and its ranks not started yet
  std::optional<HeadStep> after_;
  bool moved_ = false;  // nodes have other positions than at the start
};

}  // namespace train::actors
