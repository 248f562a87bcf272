#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <vector>

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
