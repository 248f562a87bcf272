#pragma once

#include <caf/fwd.hpp>

#include "actors/handles.hpp"
#include "actors/train/rank_runtime.hpp"
#include "engine/parameter.hpp"

namespace train::actors {

/// One optimizer group (decay or no-decay): UpdateParameters puts the group's fused update on the
/// compute stream and answers the rank with UpdateEnqueued.
/// Dies of: a broken invariant while enqueuing.
[[nodiscard]] OptimizerActor spawn_optimizer(caf::actor_system& system, const RankContext& context,
                                             engine::ParameterGroup group);

}  // namespace train::actors
