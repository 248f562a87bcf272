#pragma once

#include "tests/step_model/step_model.hpp"

// Inputs of the model of a step, measured on this machine.
namespace train::bench {

/// Times of one rank's kernels on one thread, while `processes` processes do the same (sharing
/// caches and memory). Blocks are measured once and represent all. `run` may be a shallower model
/// with the same units: see with_layers().
[[nodiscard]] engine::KernelTimes measure_kernels(const engine::RankOptions& run, int processes);

/// Times of a model of `layers` blocks, from those of a shallower one.
[[nodiscard]] engine::KernelTimes with_layers(engine::KernelTimes times, std::int64_t layers);

/// Time of a lane: forward and backward of all units.
[[nodiscard]] double lane_seconds(const engine::KernelTimes& times);

/// Two processes over loopback TCP, on an otherwise idle machine.
[[nodiscard]] engine::LinkModel measure_loopback();

}  // namespace train::bench
