#pragma once

#include <caf/fwd.hpp>

#include "actors/handles.hpp"
#include "actors/train/rank_runtime.hpp"

namespace train::actors {

/// Reads the tokens of lanes, in the order of commands and lanes, as slots become free.
///
///   PrepareLanes -> LaneReady for each lane, to the rank (training, probe) or the evaluator.
///   BatchSlotFree -> the slot may be filled again: the credits that bound the queue.
/// Reading happens on the input stream. Data that cannot be used (a token outside the vocabulary)
/// is WorkFailed to the rank, with the user's exit code.
[[nodiscard]] BatchActor spawn_batch(caf::actor_system& system, const RankContext& context);

}  // namespace train::actors
