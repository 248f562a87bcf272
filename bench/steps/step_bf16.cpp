#include "bench/steps/step_bf16.hpp"

#include <fmt/format.h>

#include "bench/steps/step_sides.hpp"
#include "kernels/backend.hpp"

namespace train::bench {

void print_bf16_gain(const Workplace& place, const StepCase& one, const Length& length,
                     double target) {
  if (kernels::cpu_bf16_backend() == nullptr) {
    print_result(fmt::format("{}: bf16", one.name), "this processor has no AVX512_BF16");
    return;
  }
  const double tokens = tokens_of_step(plan_of_case(place, one));
  Values seconds[2];
  Values gain;
  for (int round = 0; round < length.rounds; ++round) {
    for (const int turn : {round % 2, 1 - round % 2}) {  // Alternates, so that a slow drift favours
                                                         // neither.
      const char* compute = turn == 1 ? "bf16" : "fp32";
      seconds[turn].add(run_ours(place, one, length.steps, length.dropped,
                                 {fmt::format("precision.compute=\"{}\"", compute)})
                            .seconds);
    }
    gain.add(seconds[0].all.back() / seconds[1].all.back());
  }
  print_result(fmt::format("{}: fp32, tokens/s", one.name), per_second(seconds[0], tokens).text(0));
  print_result(fmt::format("{}: bf16, tokens/s", one.name), per_second(seconds[1], tokens).text(0));
  print_at_least(fmt::format("{}: bf16 / fp32", one.name), gain, target);
}

}  // namespace train::bench
