#pragma once

#include <caf/fwd.hpp>

#include "actors/handles.hpp"
#include "actors/train/rank_runtime.hpp"

namespace train::actors {

/// The ordered channels of a rank (EX-2): a request is answered when it was its turn and its data
/// has moved; one that comes early is parked. A request that no command expects ends the actor with
/// a text that names both sides.
[[nodiscard]] CollectiveActor spawn_collective(caf::actor_system& system,
                                               const RankContext& context);

}  // namespace train::actors
