#pragma once

#include <vector>

#include "actors/messages/fields.hpp"
#include "actors/system/handles.hpp"

// Wiring: sent once to each actor before the first command, because the actors' references are
// circular. Work that arrives before its wiring is a broken invariant.
namespace train::actors {

/// Wiring -> conductor: The ranks it commands, and the run's listeners.
struct ConnectConductor {
  std::vector<RankActor> ranks;          ///< By rank.
  std::vector<NamedListener> listeners;  ///< The run ends when they have finished.
  caf::actor waiter;                     ///< Receives RunFinished.
  IndexActor index = {};                 ///< Null: nothing is ever saved.
  ObserverActor observer = {};           ///< Null: stalls are not watched.
};

/// Wiring -> rank: The parts it supervises, and its conductor.
struct ConnectRank {
  ConductorActor conductor;
  BatchActor batch;
  std::vector<LayerActor> layers;
  std::vector<OptimizerActor> optimizers;  ///< One per parameter group.
  EvaluatorActor evaluator;
  SnapshotActor snapshot;
  CollectiveActor collective;
  BuffersActor buffers;
  std::vector<CommandFollower> followers;  ///< Receive every command when the rank begins it.
  NamedActors parts;                       ///< All of the rank's actors: it fails when one ends.
};

/// Wiring -> collective: The receivers of failures, and of packed gradients.
struct ConnectCollective {
  RankActor rank;
  BuffersActor buffers;
};

/// Wiring -> buffers: The actor that runs the gathers.
struct ConnectBuffers {
  CollectiveActor collective;
  RankActor rank;
};

/// Wiring -> batch: The actors that request lanes.
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

/// Wiring -> evaluator: The source of its lanes, and their destination.
struct ConnectEvaluator {
  RankActor rank;
  BatchActor batch;
  LayerActor first_layer;
};

/// Wiring -> optimizer: The actor that requests updates.
struct ConnectOptimizer {
  RankActor rank;
};

/// Wiring -> snapshot: The actor that requests copies, and the receivers of shards and failures.
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

/// Wiring -> reporter: The receiver of a failure.
struct ConnectReporter {
  ConductorActor conductor;
};

}  // namespace train::actors

TRAIN_LOCAL_MESSAGE(train::actors::ConnectConductor)
TRAIN_LOCAL_MESSAGE(train::actors::ConnectRank)
TRAIN_LOCAL_MESSAGE(train::actors::ConnectCollective)
TRAIN_LOCAL_MESSAGE(train::actors::ConnectBuffers)
TRAIN_LOCAL_MESSAGE(train::actors::ConnectBatch)
TRAIN_LOCAL_MESSAGE(train::actors::ConnectLayer)
TRAIN_LOCAL_MESSAGE(train::actors::ConnectEvaluator)
TRAIN_LOCAL_MESSAGE(train::actors::ConnectOptimizer)
TRAIN_LOCAL_MESSAGE(train::actors::ConnectSnapshot)
TRAIN_LOCAL_MESSAGE(train::actors::ConnectIndex)
TRAIN_LOCAL_MESSAGE(train::actors::ConnectReporter)
