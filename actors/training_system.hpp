#pragma once

#include <vector>

#include "actors/head/run_registry.hpp"
#include "actors/train/rank_registry.hpp"

namespace train::actors {

/// Rank and its parts, wired to each other.
struct RankActors {
  RankActor rank;
  std::vector<caf::actor> all;  ///< Starts with the rank.
};

/// Actors of the launcher.
struct HeadActors {
  ConductorActor conductor;
  IndexActor index;
  ObserverActor observer;
  std::vector<caf::actor> all;  ///< Starts with the conductor.
  std::vector<NamedListener> listeners;
  std::vector<WireToRanks> wiring;  ///< Calls of connect_head() for each except the conductor.
};

/// Spawns and wires a rank. REQUIRES: `system` runs handlers on one thread: two actors of a rank
/// enqueue work for different groups on its stream that shares scratch memory, and must not
/// interleave.
[[nodiscard]] RankActors start_rank(caf::actor_system& system, const RankParts& parts,
                                    const RankHead& head);

/// Spawns the launcher's actors; idle until connect_head().
[[nodiscard]] HeadActors start_head(caf::actor_system& system, const HeadParts& parts);

/// Connects the launcher to all ranks, in order, and issues the first command. `waiter` receives
/// RunFinished.
void connect_head(const HeadActors& head, const std::vector<RankActor>& ranks,
                  const caf::actor& waiter);

/// Handles of a wired run: the conductor for signals, all of them for the shutdown.
struct TrainingActors {
  ConductorActor conductor;
  std::vector<caf::actor> all;
};

/// Starts the ranks and the launcher's actors in this process: a single rank, or several connected
/// by an in-process transport.
[[nodiscard]] TrainingActors start_training(caf::actor_system& system,
                                            const std::vector<RankParts>& ranks,
                                            const HeadParts& head, const caf::actor& waiter);

/// Stops every actor and drops its handle.
void stop_training(TrainingActors& actors);
void stop_actors(std::vector<caf::actor>& actors);

}  // namespace train::actors
