#pragma once

#include <vector>

#include "actors/head/run_registry.hpp"
#include "actors/train/rank_registry.hpp"

namespace train::actors {

/// A rank and its parts, wired to each other.
struct RankActors {
  RankActor rank;
  std::vector<caf::actor> all;  ///< The rank first.
};

/// The launcher's actors.
struct HeadActors {
  ConductorActor conductor;
  IndexActor index;
  ObserverActor observer;
  std::vector<caf::actor> all;  ///< The conductor first.
  std::vector<NamedListener> listeners;
  std::vector<WireToRanks> wiring;  ///< What connect_head() does for each but the conductor.
};

/// Spawns and wires a rank. REQUIRES: `system` runs handlers on one thread: the work that
/// two of a rank's actors put on its stream for groups of their own shares scratch memory, and
/// must not be mixed.
[[nodiscard]] RankActors start_rank(caf::actor_system& system, const RankParts& parts,
                                    const RankHead& head);

/// Spawns the launcher's actors; nothing happens before connect_head().
[[nodiscard]] HeadActors start_head(caf::actor_system& system, const HeadParts& parts);

/// Hands the launcher all ranks, in their order: the first command is on its way on return.
/// `waiter` receives RunFinished.
void connect_head(const HeadActors& head, const std::vector<RankActor>& ranks,
                  const caf::actor& waiter);

/// Handles of a wired run: the conductor for signals, all of them for the shutdown.
struct TrainingActors {
  ConductorActor conductor;
  std::vector<caf::actor> all;
};

/// All of the above for ranks that live in this process. Of one rank, or of several joined by an
/// in-process transport.
[[nodiscard]] TrainingActors start_training(caf::actor_system& system,
                                            const std::vector<RankParts>& ranks,
                                            const HeadParts& head, const caf::actor& waiter);

/// Stops every actor and forgets them.
void stop_training(TrainingActors& actors);
void stop_actors(std::vector<caf::actor>& actors);

}  // namespace train::actors
