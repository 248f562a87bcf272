#include "actors/run/training_system.hpp"

#include <caf/all.hpp>

#include "actors/batch_actor.hpp"
#include "actors/collective_actor.hpp"
#include "actors/conductor_actor.hpp"
#include "actors/credit_graph.hpp"

#include "actors/evaluator_actor.hpp"
#include "actors/layer_actor.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/optimizer_actor.hpp"
#include "actors/reporter_actor.hpp"
#include "actors/watchdog_actor.hpp"

namespace train::actors {
namespace {

/// The parts of a rank, wired to each other.
ConnectRank spawn_parts(caf::actor_system& system, const TrainingParts& parts) {
  const RankContext& context = parts.context;
  ConnectRank rank;
  rank.batch = spawn_batch(system, context);
  rank.evaluator = spawn_evaluator(system, context);
  rank.collective = spawn_collective(system, context);
  rank.snapshot = spawn_snapshot(system, context, parts.write);
  rank.decay = spawn_optimizer(system, context, engine::ParameterGroup::decay);
  rank.no_decay = spawn_optimizer(system, context, engine::ParameterGroup::no_decay);
  for (std::size_t unit = 0; unit < context->engine->unit_count(); ++unit) {
    rank.layers.push_back(spawn_layer(system, context, unit));
  }
  return rank;
}

void connect_parts(const ConnectRank& parts, const RankActor& rank) {
  for (std::size_t unit = 0; unit < parts.layers.size(); ++unit) {
    ConnectLayer peers{.previous = {},
                       .next = {},
                       .rank = rank,
                       .evaluator = parts.evaluator,
                       .collective = parts.collective};
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
  caf::anon_send(parts.decay, ConnectOptimizer{rank});
  caf::anon_send(parts.no_decay, ConnectOptimizer{rank});
}

}  // namespace

TrainingActors start_training(caf::actor_system& system, const TrainingParts& parts,
                              const caf::actor& waiter) {
  const Status credits = check_credits(credits_of_run(parts.context->engine->options().lane_slots));
  TRAIN_CHECK(credits.ok(), "{}", credits.error().message);
  const ConductorActor conductor = spawn_conductor(system, parts.context->waits, parts.program);
  const ReporterActor reporter = spawn_reporter(system, parts.report, parts.report_stream);
  const IndexActor index = spawn_index(system, parts.context, parts.record);
  const RankActor rank = spawn_rank(system, parts.context, parts.reporting);
  ConnectRank peers = spawn_parts(system, parts);
  peers.conductor = conductor;
  // Last of all: from here on the board's lines are fixed, and the watchdog may read them.
  const WatchdogActor watchdog = spawn_watchdog(system, parts.context, parts.stall_ns);

  connect_parts(peers, rank);
  caf::anon_send(peers.snapshot, ConnectSnapshot{rank, conductor, index});
  caf::anon_send(index, ConnectIndex{peers.snapshot, conductor});
  caf::anon_send(reporter, ConnectReporter{conductor});
  caf::anon_send(rank, peers);
  caf::anon_send(conductor, ConnectConductor{rank, reporter, waiter});

  TrainingActors actors{.conductor = conductor, .all = {}};
  const auto keep = [&actors](const auto& handle) {
    actors.all.push_back(caf::actor_cast<caf::actor>(handle));
  };
  keep(conductor);
  keep(rank);  // before its parts: their ordered end is no failure to a rank that is gone
  keep(reporter);
  keep(index);
  keep(watchdog);
  keep(peers.batch);
  keep(peers.evaluator);
  keep(peers.collective);
  keep(peers.snapshot);
  keep(peers.decay);
  keep(peers.no_decay);
  for (const LayerActor& layer : peers.layers) {
    keep(layer);
  }
  return actors;
}

void stop_training(TrainingActors& actors) {
  for (const caf::actor& actor : actors.all) {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  actors.all.clear();
  actors.conductor = nullptr;
}

}  // namespace train::actors
