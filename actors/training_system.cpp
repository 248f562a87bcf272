#include "actors/training_system.hpp"

#include <caf/all.hpp>

#include "actors/head/report/reporter_actor.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/train/rank_actors.hpp"

namespace train::actors {
namespace {

template <class Handle>
void keep(std::vector<caf::actor>& all, const Handle& handle) {
  all.push_back(caf::actor_cast<caf::actor>(handle));
}

template <class Handle>
Handle add(NamedActors& parts, std::string name, const Handle& actor) {
  parts.emplace_back(std::move(name), caf::actor_cast<caf::actor>(actor));
  return actor;
}

/// The actors of a rank but itself. An actor's line here spawns it and names it; by that name it is
/// supervised, watched and stopped.
ConnectRank spawn_parts(caf::actor_system& system, const RankParts& parts) {
  const RankContext& context = parts.context;
  ConnectRank rank;
  NamedActors& all = rank.parts;
  rank.batch = add(all, "batch", spawn_batch(system, context));
  rank.evaluator = add(all, "evaluator", spawn_evaluator(system, context));
  rank.collective = add(all, "collective", spawn_collective(system, context));
  rank.buffers = add(all, "buffers", spawn_buffers(system, context));
  rank.snapshot = add(all, "snapshot", spawn_snapshot(system, context, parts.shards));
  rank.decay = add(all, "optimizer group decay",
                   spawn_optimizer(system, context, engine::ParameterGroup::decay));
  rank.no_decay = add(all, "optimizer group no_decay",
                      spawn_optimizer(system, context, engine::ParameterGroup::no_decay));
  for (std::size_t unit = 0; unit < context->engine->unit_count(); ++unit) {
    rank.layers.push_back(
        add(all, context->engine->unit_name(unit), spawn_layer(system, context, unit)));
  }
  return rank;
}

void connect_parts(const ConnectRank& parts, const RankActor& rank) {
  for (std::size_t unit = 0; unit < parts.layers.size(); ++unit) {
    ConnectLayer peers{.previous = {},
                       .next = {},
                       .rank = rank,
                       .evaluator = parts.evaluator,
                       .collective = parts.collective,
                       .buffers = parts.buffers};
    if (unit > 0) {
      peers.previous = parts.layers[unit - 1];
    }
    if (unit + 1 < parts.layers.size()) {
      peers.next = parts.layers[unit + 1];
    }
    caf::anon_send(parts.layers[unit], peers);
  }
  caf::anon_send(parts.batch, ConnectBatch{rank, parts.evaluator});
  caf::anon_send(parts.evaluator, ConnectEvaluator{rank, parts.batch, parts.layers.front()});
  caf::anon_send(parts.collective, ConnectCollective{rank, parts.buffers});
  caf::anon_send(parts.buffers, ConnectBuffers{parts.collective, rank});
  caf::anon_send(parts.decay, ConnectOptimizer{rank});
  caf::anon_send(parts.no_decay, ConnectOptimizer{rank});
}

}  // namespace

RankActors start_rank(caf::actor_system& system, const RankParts& parts, const RankHead& head) {
  TRAIN_CHECK(system.scheduler().num_workers() == 1, "actors of a rank on {} threads",
              system.scheduler().num_workers());
  RankActors actors;
  actors.rank = spawn_rank(system, parts.context, parts.reporting);
  ConnectRank peers = spawn_parts(system, parts);
  peers.conductor = head.conductor;
  keep(actors.all, actors.rank);  // before its parts: their ordered end is no failure to it then
  // Last of all: from here on the board's lines are fixed, and the watchdog may read them.
  if (head.observer) {
    NamedActors watched = {{"rank", actors.all.front()}};
    watched.insert(watched.end(), peers.parts.begin(), peers.parts.end());
    keep(actors.all, spawn_watchdog(system, parts.context, head.observer, std::move(watched)));
  }
  for (const auto& [name, part] : peers.parts) {
    actors.all.push_back(part);
  }

  connect_parts(peers, actors.rank);
  caf::anon_send(peers.snapshot, ConnectSnapshot{actors.rank, head.conductor, head.index});
  caf::anon_send(actors.rank, peers);
  return actors;
}

HeadActors start_head(caf::actor_system& system, const HeadParts& parts) {
  HeadActors head;
  head.conductor = spawn_conductor(system, *parts.waits, parts.program, parts.drain);
  head.reporter = spawn_reporter(system, parts.report, parts.report_stream);
  head.index = spawn_index(system, parts.disk, parts.index);
  Observing observing = parts.observing;
  observing.waits = parts.waits;
  observing.report = parts.report;
  observing.disk = parts.disk;
  observing.conductor = head.conductor;
  head.observer = spawn_observer(system, observing, parts.report_stream);
  keep(head.all, head.conductor);
  keep(head.all, head.reporter);
  keep(head.all, head.index);
  keep(head.all, head.observer);
  return head;
}

void connect_head(const HeadActors& head, const std::vector<RankActor>& ranks,
                  const caf::actor& waiter) {
  caf::anon_send(head.index, ConnectIndex{ranks, head.conductor});
  caf::anon_send(head.reporter, ConnectReporter{head.conductor});
  caf::anon_send(head.conductor,
                 ConnectConductor{ranks, head.reporter, waiter, head.index, head.observer});
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
  keep(actors.all, launcher.reporter);
  keep(actors.all, launcher.index);
  keep(actors.all, launcher.observer);
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
