#pragma once

#include <caf/fwd.hpp>

#include "actors/handles.hpp"
#include "actors/train/rank_runtime.hpp"

namespace train::actors {

/// Lends what layers share: gathered weights, gradient buffers. Starts gathers in the order of the
/// schedule (BufferReservations), refreshes weights after an update, answers reservations.
///
///   OpenCommand -> (WeightsFinalized: the stream has run what was before) gathers are requested;
///   AcquireWeights -> answered when the weights are there, AcquireGradientBuffer -> when the
///   gradient buffer may be written; VisitEnqueued, GradientPacked -> reservations end, further
///   gathers start; AllGatherWeights -> one all-gather per group is requested; later reservations
///   of it wait for that. GathersFinished goes to the rank when the last gather of a training step
///   has ended.
/// Commands are taken one after the other. Credits: gather_credits, prefetch, gradient buffers
/// (EX-4).
[[nodiscard]] BuffersActor spawn_buffers(caf::actor_system& system, const RankContext& context);

}  // namespace train::actors
