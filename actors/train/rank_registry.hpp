#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "actors/system/assembly.hpp"
#include "actors/system/handles.hpp"
#include "actors/train/rank_actors.hpp"
#include "actors/train/runtime/rank_runtime.hpp"

// Registry of a rank's actors. An actor is a file that defines add_<name>() and an entry in
// rank_registry.cpp. In the order of the entries it is spawned and wired before the first command,
// the rank fails with its name when it ends, the watchdog reports the length of its mailbox, and it
// is stopped at the end of the run, after the rank.
namespace train::actors {

class RankAssembly;

/// Spawns an actor of a rank, or several of one kind, or none if the rank does not need it, and
/// adds it to the assembly. Does not block.
using AddToRank = void (*)(RankAssembly& rank);

/// All registered actors, in order.
[[nodiscard]] std::span<const AddToRank> registered_rank_actors();

/// Inputs for building the actors of one rank.
struct RankParts {
  RankContext context;
  ShardWork shards;
  RankReporting reporting = {};
  std::span<const AddToRank> actors = registered_rank_actors();
};

/// Head actors of a rank: its conductor, index and observer; may be in another process.
struct RankHead {
  ConductorActor conductor;
  IndexActor index;
  ObserverActor observer = {};  ///< May be null: no reports.
};

/// Actors of one rank while they are spawned. Lives until they are wired.
class RankAssembly : public Assembly {
 public:
  RankAssembly(caf::actor_system& system, const RankParts& parts, const RankHead& head,
               RankActor rank)
      : Assembly(system), parts_(&parts), head_(&head), rank_(std::move(rank)) {}

  [[nodiscard]] const RankContext& context() const { return parts_->context; }
  [[nodiscard]] const ShardWork& shards() const { return parts_->shards; }
  [[nodiscard]] const RankHead& head() const { return *head_; }
  [[nodiscard]] const RankActor& rank() const { return rank_; }  ///< Root actor; spawned first.

  /// Sends the actor every command when the rank begins it, in the order of their numbers, before
  /// any other message of that command.
  void follow_commands(CommandFollower actor) { followers_.push_back(std::move(actor)); }
  [[nodiscard]] const std::vector<CommandFollower>& followers() const { return followers_; }

  /// Sends an actor its peers: called when all actors are spawned, for actors with cyclic
  /// references.
  void when_spawned(std::function<void()> wire) { wiring_.push_back(std::move(wire)); }
  void wire() const {
    for (const auto& each : wiring_) {
      each();
    }
  }

 private:
  const RankParts* parts_;
  const RankHead* head_;
  RankActor rank_;
  std::vector<CommandFollower> followers_;
  std::vector<std::function<void()>> wiring_;
};

}  // namespace train::actors
