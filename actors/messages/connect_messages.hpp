#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <vector>

#include "actors/handles.hpp"

// Wiring: sent once to each actor before the first command, because actors know each other in
// circles. An actor that gets work before its wiring is a broken invariant.
namespace train::actors {

/// Wiring -> conductor: The ranks it commands, and who hears of the run.
struct ConnectConductor {
  std::vector<RankActor> ranks;          ///< By rank.
  std::vector<NamedListener> listeners;  ///< The run ends when they are done.
  caf::actor waiter;                     ///< Receives RunFinished.
  IndexActor index = {};                 ///< None: nothing is ever saved.
  ObserverActor observer = {};           ///< None: nobody asks about stalls.
};

/// Wiring -> rank: The parts it supervises, and its conductor.
struct ConnectRank {
  ConductorActor conductor;
  BatchActor batch;
  std::vector<LayerActor> layers;
  std::vector<OptimizerActor> optimizers;  ///< One a parameter group.
  EvaluatorActor evaluator;
  SnapshotActor snapshot;
  CollectiveActor collective;
  BuffersActor buffers;
  std::vector<CommandFollower> followers;  ///< Get every command when the rank begins it.
  NamedActors parts;                       ///< All of the rank's actors: it fails when one ends.
};

/// Wiring -> collective: Who hears of a failure, and of gradients that are packed.
struct ConnectCollective {
  RankActor rank;
  BuffersActor buffers;
};

/// Wiring -> buffers: Who runs the gathers.
struct ConnectBuffers {
  CollectiveActor collective;
  RankActor rank;
};

/// Wiring -> batch: Who asks for lanes.
struct ConnectBatch {
  RankActor rank;
  EvaluatorActor evaluator;
};

/// Wiring -> layer: Its neighbours in the chain, and the actors that serve it.
struct ConnectLayer {
  LayerActor previous;  ///< Empty at the embedding.
  LayerActor next;      ///< Empty at the head.
  RankActor rank;
  EvaluatorActor evaluator;
  CollectiveActor collective;
  BuffersActor buffers;
};

/// Wiring -> evaluator: Where its lanes come from, and where they go.
struct ConnectEvaluator {
  RankActor rank;
  BatchActor batch;
  LayerActor first_layer;
};

/// Wiring -> optimizer: Who asks for updates.
struct ConnectOptimizer {
  RankActor rank;
};

/// Wiring -> snapshot: Who asks for copies, and who hears of shards and failures.
struct ConnectSnapshot {
  RankActor rank;
  ConductorActor conductor;
  IndexActor index;
};

/// Wiring -> index: The ranks it gives orders to, and the conductor.
struct ConnectIndex {
  std::vector<RankActor> ranks;
  ConductorActor conductor;
};

/// Wiring -> reporter: Who hears of a failure.
struct ConnectReporter {
  ConductorActor conductor;
};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectConductor)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectRank)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectBatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectCollective)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectBuffers)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectLayer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectEvaluator)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectOptimizer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectSnapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectIndex)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConnectReporter)
