#pragma once

#include <functional>
#include <optional>
#include <string>

#include "bench/gpu/gpu_site.hpp"

// Measurement of whole training steps of one model, for rows of bench_gpu.
namespace train::bench {

/// Targets of a row; 0: none.
struct Targets {
  double tokens_per_second = 0.0;
  double stated_share = 0.0;    ///< Fraction of the FLOP/s stated by the device's maker.
  double measured_share = 0.0;  ///< Fraction of the FLOP/s that a product reaches there.
};

struct Length {
  int rounds = 2;
  int steps = 10;  ///< Steps of each side per round.
  int dropped = 4;
};
inline constexpr Length kManySteps{.rounds = 3, .steps = 30, .dropped = 5};
inline constexpr Length kSomeSteps{.rounds = 2, .steps = 10, .dropped = 3};

/// `length`, or one short enough for an emulated device.
[[nodiscard]] Length taken(const GpuSite& site, const Length& length);

// Functions that print their results, and block. Throw std::exception if nothing can be measured.

/// Measures the program's steps: speed, and the time of its actors.
void measure_speed(const GpuSite& site, const StepCase& one, const Length& length,
                   const Targets& targets);
/// Measures also the memory used, against the prediction.
void measure_ours(const GpuSite& site, const StepCase& one, const Length& length,
                  const Targets& targets);
/// Measures the program's steps and PyTorch's in turn; reports if PyTorch is missing.
void compare_with_torch(const GpuSite& site, const StepCase& one, const Length& length);
/// Measures the program's steps and those of the plain loop in turn.
void compare_with_plain_loop(const GpuSite& site, const StepCase& one, const Length& length);
/// Prints when the device was idle, from a profile.
void print_gaps(const GpuSite& site, const StepCase& one);

/// Step with as many sequences as the device has room for, at most `most`; nullopt, with a printed
/// reason, if there is no room for one.
[[nodiscard]] std::optional<StepCase> largest_that_fits(
    const GpuSite& site, int most, const std::function<StepCase(int sequences)>& of_sequences);

}  // namespace train::bench
