#pragma once

#include <functional>
#include <optional>
#include <string>

#include "bench/gpu_site.hpp"

// How rows of bench_gpu measure whole training steps of one model.
namespace train::bench {

/// What a row asks for; 0: nothing.
struct Targets {
  double tokens_per_second = 0.0;
  double stated_share = 0.0;    ///< Of the FLOP/s that the device's maker states.
  double measured_share = 0.0;  ///< Of those that a product reaches there.
};

struct Length {
  int rounds = 2;
  int steps = 10;  ///< Of each side in a round.
  int dropped = 4;
};
inline constexpr Length kManySteps{.rounds = 3, .steps = 30, .dropped = 5};
inline constexpr Length kSomeSteps{.rounds = 2, .steps = 10, .dropped = 3};

/// `length`, or what an emulated device gets through.
[[nodiscard]] Length taken(const GpuSite& site, const Length& length);

// They print their results, and block. Throw std::exception where nothing can be measured.

/// The program's steps: speed, the time of its actors.
void measure_speed(const GpuSite& site, const StepCase& one, const Length& length,
                   const Targets& targets);
/// The same, and the memory that they took against what was predicted.
void measure_ours(const GpuSite& site, const StepCase& one, const Length& length,
                  const Targets& targets);
/// The program's steps and PyTorch's in turns; said if there is no PyTorch.
void compare_with_torch(const GpuSite& site, const StepCase& one, const Length& length);
/// The program's steps and those of the plain loop in turns.
void compare_with_plain_loop(const GpuSite& site, const StepCase& one, const Length& length);
/// Where the device had no work, by a profile.
void print_gaps(const GpuSite& site, const StepCase& one);

/// The step of as many sequences as the device has room for, at most `most`; nothing, and said why,
/// where it has none for one.
[[nodiscard]] std::optional<StepCase> largest_that_fits(
    const GpuSite& site, int most, const std::function<StepCase(int sequences)>& of_sequences);

}  // namespace train::bench
