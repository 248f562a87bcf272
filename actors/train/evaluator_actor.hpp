#pragma once

#include <caf/fwd.hpp>

#include "actors/handles.hpp"
#include "actors/train/rank_runtime.hpp"

namespace train::actors {

/// Drives the evaluation lanes down the chain of layer shards.
///
///   RunEvaluation -> PrepareLanes to the batch actor; LaneReady -> ForwardLane to the first layer,
///   as credits allow; when all lanes are on the stream: EvaluationEnqueued to the rank.
/// Dies of: a broken invariant.
[[nodiscard]] EvaluatorActor spawn_evaluator(caf::actor_system& system, const RankContext& context);

}  // namespace train::actors
