#include "actors/training_system.hpp"

#include <caf/all.hpp>

#include "actors/messages/connect_messages.hpp"

namespace train::actors {
namespace {

template <class Handle>
void keep(std::vector<caf::actor>& all, const Handle& handle) {
  all.push_back(caf::actor_cast<caf::actor>(handle));
}

/// Peers of the rank actor.
ConnectRank peers_of(const RankAssembly& rank) {
  return {.conductor = rank.head().conductor,
          .batch = rank.the<BatchActor>(),
          .layers = rank.all<LayerActor>(),
          .optimizers = rank.all<OptimizerActor>(),
          .evaluator = rank.the<EvaluatorActor>(),
          .snapshot = rank.the<SnapshotActor>(),
          .collective = rank.the<CollectiveActor>(),
          .buffers = rank.the<BuffersActor>(),
          .followers = rank.followers(),
          .parts = rank.parts()};
}

}  // namespace

RankActors start_rank(caf::actor_system& system, const RankParts& parts, const RankHead& head) {
  TRAIN_CHECK(system.scheduler().num_workers() == 1, "actors of a rank on {} threads",
              system.scheduler().num_workers());
  RankActors actors;
  actors.rank = spawn_rank(system, parts.context, parts.reporting);
  RankAssembly assembly(system, parts, head, actors.rank);
  for (const AddToRank add : parts.actors) {
    add(assembly);
  }
  keep(actors.all, actors.rank);  // First: its parts' ordered end is then no failure.
  // Last actor: from here on the board's lines are fixed, and the watchdog may read them.
  if (head.observer) {
    NamedActors watched = {{"rank", actors.all.front()}};
    watched.insert(watched.end(), assembly.parts().begin(), assembly.parts().end());
    keep(actors.all, spawn_watchdog(system, parts.context, head.observer, std::move(watched)));
  }
  for (const auto& [name, part] : assembly.parts()) {
    actors.all.push_back(part);
  }
  assembly.wire();
  caf::anon_send(actors.rank, peers_of(assembly));
  return actors;
}

HeadActors start_head(caf::actor_system& system, const HeadParts& parts) {
  HeadActors head;
  head.conductor = spawn_conductor(system, *parts.waits, parts.program, parts.drain);
  RunAssembly assembly(system, parts, head.conductor);
  for (const AddToRun add : parts.actors) {
    add(assembly);
  }
  head.index = assembly.the<IndexActor>();
  head.observer = assembly.the<ObserverActor>();
  keep(head.all, head.conductor);
  for (const auto& [name, actor] : assembly.parts()) {
    head.all.push_back(actor);
  }
  head.listeners = assembly.listeners();
  head.wiring = assembly.wiring();
  return head;
}

void connect_head(const HeadActors& head, const std::vector<RankActor>& ranks,
                  const caf::actor& waiter) {
  for (const WireToRanks& wire : head.wiring) {
    wire(ranks);
  }
  caf::anon_send(head.conductor,
                 ConnectConductor{ranks, head.listeners, waiter, head.index, head.observer});
}

TrainingActors start_training(caf::actor_system& system, const std::vector<RankParts>& ranks,
                              const HeadParts& head, const caf::actor& waiter) {
  const HeadActors launcher = start_head(system, head);
  TrainingActors actors{.conductor = launcher.conductor, .all = {}};
  keep(actors.all, launcher.conductor);
  std::vector<RankActor> handles;
  std::vector<caf::actor> parts;
  for (const RankParts& rank : ranks) {
    RankActors started =
        start_rank(system, rank, {launcher.conductor, launcher.index, launcher.observer});
    handles.push_back(started.rank);
    keep(actors.all, started.rank);
    parts.insert(parts.end(), started.all.begin() + 1, started.all.end());
  }
  actors.all.insert(actors.all.end(), launcher.all.begin() + 1, launcher.all.end());
  actors.all.insert(actors.all.end(), parts.begin(), parts.end());
  connect_head(launcher, handles, waiter);
  return actors;
}

void stop_actors(std::vector<caf::actor>& actors) {
  for (const caf::actor& actor : actors) {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  actors.clear();
}

void stop_training(TrainingActors& actors) {
  stop_actors(actors.all);
  actors.conductor = nullptr;
}

}  // namespace train::actors
