#pragma once

#include <memory>
#include <optional>
#include <span>

#include "actors/messages/cluster_messages.hpp"
#include "run/prepared_run.hpp"
#include "run/recovery/generations.hpp"
#include "run/recovery/head_table.hpp"

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
class ProcessRanks final : public run::OtherNodes {
 public:
  explicit ProcessRanks(run::PreparedRun& run);
  /// Tells launchers that wait for a generation to end.
  ~ProcessRanks() override;

  /// Within its time this node's own network may recover, too.
  [[nodiscard]] Result<run::Membership> meet() override;
  [[nodiscard]] Status place(std::span<const std::int64_t> members) override;
  void join_again() override { tell({.again = true}); }
  void end(std::int32_t exit_code) override { tell({.exit_code = exit_code}); }

  /// Runs one generation until it is over. On return none of its processes is left on this node.
  /// Errors: for a run on one node, those of HeadNetwork::open().
  [[nodiscard]] Result<run::RunFinished> run(std::shared_ptr<run::RunReport> report);

 private:
  /// Tells the launchers of the other nodes, if there is a network to tell them.
  void tell(const GenerationOver& over);

  run::PreparedRun& run_;
  // Network of this generation. It outlives run() until the launchers know what follows: pending
  // disk work takes time.
  std::unique_ptr<HeadNetwork> network_;
  std::unique_ptr<GenerationHead> head_;
};

}  // namespace train::actors
