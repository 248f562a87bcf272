#pragma once

#include <caf/fwd.hpp>

#include "actors/handles.hpp"
#include "actors/train/rank_runtime.hpp"

namespace train::actors {

/// Lends what layers share: gathered weights, gradient leaves. Starts gathers in the order of the
/// schedule (LeaseBook), refreshes weights after an update, answers leases.
///
///   OpenCommand -> (WeightsSettled: the stream has run what was before) gathers are requested;
///   LeaseWeights -> answered when the weights are there, LeaseLeaf -> when the leaf may be
///   written; VisitEnqueued, GradientPacked -> leases end, further gathers start; RefreshWeights ->
///   one refresh per group is requested; later leases of it wait for that. GathersFinished goes to
///   the rank when the last gather of a training step has ended.
/// Commands are taken one after the other. Credits: gather_credits, prefetch, leaves (EX-4).
[[nodiscard]] BuffersActor spawn_buffers(caf::actor_system& system, const RankContext& context);

}  // namespace train::actors
