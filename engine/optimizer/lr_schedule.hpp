#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "configs/sections/optimizer_section.hpp"

namespace train::engine {

/// Learning rate of update `step` (from 0) of `total_steps`. Pure. The values and the edge cases
/// (warm-up 0 and 1) are those of PyTorch's schedulers, in double.
///
/// "cos", "linear": torch's OneCycleLR with its cosine or linear annealing, both up and down.
/// "cos_inf": linear warm-up, cosine, then constant_tail_steps at the floor.
/// "wsd": linear warm-up, the peak, then the last wsd_decay_steps() of the run fall from the peak
/// to decay_floor times it; with x the share of them that is over, the fallen part is linear: x,
/// cosine: (1 - cos(pi x)) / 2, mirror_cosine: 2 x minus that, square: x^2, sqrt: sqrt(x); exp
/// multiplies the peak by decay_floor^x.
/// "constant": linear warm-up, then the peak.
///
/// No update has step total_steps. There "cos" and "linear" lie past the floor on their curve, as
/// torch's do; beyond it, where torch raises, and for all others, the floor stays.
/// REQUIRES: a validated section.
[[nodiscard]] double learning_rate(const configs::ScheduleSection& schedule, double peak,
                                   std::int64_t step, std::int64_t total_steps);

}  // namespace train::engine
