#pragma once

#include <functional>
#include <optional>

#include "bench/step_case.hpp"

// Our step against PyTorch's of the same model, round by round: what the rows of bench_step and
// bench_published have in common.
namespace train::bench {

/// How long a comparison lasts.
struct Length {
  int rounds = 3;        ///< At most: after three of them none begins once 100 s are over.
  int steps = 3;         ///< Of each side in a round.
  int dropped = 2;       ///< First steps of ours: they fill caches and pages.
  bool thorough = true;  ///< The peers find their faster way, and wake up before each round.
};

/// Both sides, round by round; without PyTorch only ours.
struct Comparison {
  Values ours_s, eager_s, compiled_s;
  Values ratio;  ///< Of speeds: ours to the better of both others in the same round.
  Values gemm_s;
  double first_loss = 0.0;        ///< Ours.
  Values our_bytes, their_bytes;  ///< Theirs: of the more frugal one.
};

/// `after_round` may add to what a round has measured. Blocks. Throws std::runtime_error.
[[nodiscard]] Comparison compare(const Workplace& place, const StepCase& one, const Length& length,
                                 const std::function<void(Comparison&)>& after_round = {});

[[nodiscard]] Values per_second(const Values& seconds, double amount);
[[nodiscard]] double tokens_of_step(const actors::RunPlan& plan);

void print_speeds(const Workplace& place, const StepCase& one, const Comparison& result,
                  double target);
/// `most_gigabytes`: a target of ours alone.
void print_memory(const StepCase& one, const Comparison& result,
                  std::optional<double> most_gigabytes);

}  // namespace train::bench
