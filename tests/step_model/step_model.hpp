#pragma once

#include <cstdint>
#include <vector>

#include "engine/rank/plan/rank_options.hpp"

// How long a training step of many ranks takes, worked out from the plan instead of run: every rank
// with its one compute stream, its three ordered channels, staging slots, reservations and lanes,
// as the actors drive them. What a message between actors of one rank costs is left out
// (microseconds).
namespace train::engine {

/// What one rank's kernels cost. Seconds; per lane, or per byte of fp32 that is read.
struct KernelTimes {
  std::vector<double> forward;   ///< By unit; of one lane.
  std::vector<double> backward;  ///< By unit; of one lane, without adding it to other lanes.
  double copy_per_byte = 0.0;    ///< Packing sums, unpacking weights.
  double add_per_byte = 0.0;     ///< Adding one sum of lanes to another.
  double norm_per_byte = 0.0;    ///< Squares of a gradient.
  double update_per_byte = 0.0;  ///< The optimizer, per byte of master weights.
  double once_per_step = 0.0;    ///< Loss, clip scale and their like.
};

/// How bytes travel. Full duplex: a rank sends and receives at once, each at `bytes_per_second`,
/// whichever channels share it. Peers are alike: there is no topology and no congestion beyond the
/// ranks' own links.
struct LinkModel {
  double latency_seconds = 0.0;     ///< One way. An exchange takes two: headers, then data.
  double bytes_per_second = 1.0;    ///< Of one rank, each direction.
  double message_seconds = 0.0;     ///< A rank's time for one peer of an exchange, one after other.
  double processor_per_byte = 0.0;  ///< Compute time that a sent or received byte takes away; 0:
                                    ///< the transport has a core, or a network card, of its own.
};

/// What a step of the modelled run is like, on average over ranks.
struct ModelledStep {
  double step_seconds = 0.0;     ///< From the end of one step to the end of the next.
  double busy_seconds = 0.0;     ///< The compute stream runs something.
  double exposed_seconds = 0.0;  ///< It waits for bytes (or for a slower rank) with work left.
  double sent_bytes = 0.0;
};

struct StepModelOptions {
  KernelTimes kernels;
  LinkModel link;
  /// Compute threads that want a core divided by the cores there are, at least 1: ranks on too few
  /// cores run so many times slower.
  double slowdown = 1.0;
  std::int64_t steps = 4;  ///< Simulated; the first two are not counted.
};

/// Plays `options.steps` training steps of `run.parallel.ranks` ranks. Pure, deterministic; memory
/// and time grow with ranks x collectives of a step.
/// REQUIRES: plan_of(run) is not an error; a time for every unit; at least 3 steps.
[[nodiscard]] ModelledStep model_step(const RankOptions& run, const StepModelOptions& options);

}  // namespace train::engine
