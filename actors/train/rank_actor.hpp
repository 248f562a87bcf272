#pragma once

#include <caf/fwd.hpp>
#include <cstdint>

#include "actors/handles.hpp"
#include "actors/train/rank_runtime.hpp"

namespace train::actors {

/// Root supervisor of one rank; executes every command, in order (EX-1).
///
///   idle --TrainStep--> lanes --last lane enqueued, all GradientReady--> loss and norm (control
///        collective) --GathersFinished--> updates --both UpdateEnqueued--> idle (+ StepFinished
///        when the stream gets there)
///   idle --Evaluate--> evaluator drives --EvaluationEnqueued--> control collective --> idle
///   idle --TakeSnapshot--> control collective --> snapshot copies --CopyEnqueued--> idle
///   idle --FindNonfinite--> lanes (probe) --> control collective --> idle (+ NonfiniteFound)
///   idle --StopRank--> snapshots drain --> RankStopped
/// A command is left as soon as its work is on the streams, so the next one is enqueued while the
/// device still computes. Commands that arrive meanwhile wait in order.
/// Supervision: monitors every part; a part that dies, or a stream that fails, ends the rank:
/// RankFailed to the conductor with part, layer, step and text, then all parts are stopped.
/// `digest_interval`: a digest of the weights every this many steps and at the last (0: only
/// there).
struct RankReporting {
  std::int64_t digest_interval = 0;
};
[[nodiscard]] RankActor spawn_rank(caf::actor_system& system, const RankContext& context,
                                   const RankReporting& reporting);

}  // namespace train::actors
