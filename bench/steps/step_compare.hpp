#pragma once

#include <functional>
#include <optional>

#include "bench/steps/step_case.hpp"

// Comparison of the engine's step with PyTorch's for the same model, in rounds: shared by the rows
// of bench_step and bench_published.
namespace train::bench {

/// Length of a comparison.
struct Length {
  int rounds = 3;   ///< Largest number: after three rounds none begins once 100 s are over.
  int steps = 3;    ///< Steps of each side per round.
  int dropped = 2;  ///< Excluded first steps of the engine, which fill caches and fault in pages.
  bool thorough = true;  ///< PyTorch first determines its faster way, and warms up before each
                         ///< round.
  bool compiled = true;  ///< Against torch.compile, too: it unrolls loops over rows.
};

/// Results of both sides, round by round; without PyTorch only the engine's.
struct Comparison {
  Values ours_s, eager_s, compiled_s;
  Values ratio;  ///< Ratio of speeds: the engine's to the better of the others in the same round.
  Values gemm_s;
  double first_loss = 0.0;        ///< First loss of the engine.
  Values our_bytes, their_bytes;  ///< PyTorch's: the smaller one.
};

/// `after_round` may add to a round's measurements. Blocks. Throws std::runtime_error.
[[nodiscard]] Comparison compare(const Workplace& place, const StepCase& one, const Length& length,
                                 const std::function<void(Comparison&)>& after_round = {});

[[nodiscard]] Values per_second(const Values& seconds, double amount);
[[nodiscard]] double tokens_of_step(const run::RunPlan& plan);

void print_speeds(const Workplace& place, const StepCase& one, const Comparison& result,
                  double target);
/// `most_gigabytes`: a target for the engine only.
void print_memory(const StepCase& one, const Comparison& result,
                  std::optional<double> most_gigabytes);

}  // namespace train::bench
