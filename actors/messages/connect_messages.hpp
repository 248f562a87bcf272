#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>
#include <vector>

#include "actors/handles.hpp"

// Wiring: sent once to each actor before the first command, because actors know each other in
// circles. An actor that gets work before its wiring is a broken invariant.
namespace train::actors {

struct ConnectConductor {
  std::vector<RankActor> ranks;  ///< By rank.
  ReporterActor reporter;
  caf::actor waiter;            ///< Receives RunFinished.
  IndexActor index = {};        ///< None: nothing is ever saved.
  ObserverActor observer = {};  ///< None: nobody asks about stalls.
};

struct ConnectRank {
  ConductorActor conductor;
  BatchActor batch;
  std::vector<LayerActor> layers;
  OptimizerActor decay;
  OptimizerActor no_decay;
  EvaluatorActor evaluator;
  SnapshotActor snapshot;
  CollectiveActor collective;
  BuffersActor buffers;
};

struct ConnectCollective {
  RankActor rank;
  BuffersActor buffers;
};

struct ConnectBuffers {
  CollectiveActor collective;
  RankActor rank;
};

struct ConnectBatch {
  RankActor rank;
  EvaluatorActor evaluator;
};

struct ConnectLayer {
  LayerActor previous;  ///< Empty at the embedding.
  LayerActor next;      ///< Empty at the head.
  RankActor rank;
  EvaluatorActor evaluator;
  CollectiveActor collective;
  BuffersActor buffers;
};

struct ConnectEvaluator {
  RankActor rank;
  BatchActor batch;
  LayerActor first_layer;
};

struct ConnectOptimizer {
  RankActor rank;
};

struct ConnectSnapshot {
  RankActor rank;
  ConductorActor conductor;
  IndexActor index;
};

struct ConnectIndex {
  std::vector<RankActor> ranks;
  ConductorActor conductor;
};

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
