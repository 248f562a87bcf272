#pragma once

#include <caf/fwd.hpp>
#include <cstddef>

#include "actors/handles.hpp"
#include "actors/train/rank_runtime.hpp"

namespace train::actors {

/// One sharding unit (embedding, block or head): puts its kernels on the compute stream, lane by
/// lane, and passes the lane on; keeps the sum of its gradients over lanes.
///
///   ForwardLane -> kernels, ForwardLane to the next unit. At the head: a training lane turns round
///     (BackwardLane to the unit before), an evaluation lane ends (LaneEnqueued to the evaluator).
///   BackwardLane -> kernels, BackwardLane to the unit before; at the embedding LaneEnqueued to the
///     rank. After the last lane of a step: the unit's reduce collective, then GradientReady.
/// Dies of: a broken invariant or a device error while enqueuing; the rank is told which unit and
/// step.
[[nodiscard]] LayerActor spawn_layer(caf::actor_system& system, const RankContext& context,
                                     std::size_t unit);

}  // namespace train::actors
