#include "bench/steps/step_rows.hpp"

#include <fmt/format.h>

#include <cmath>

#include "bench/steps/step_bf16.hpp"
#include "bench/steps/step_compare.hpp"
#include "bench/steps/step_gemm.hpp"
#include "bench/steps/step_shares.hpp"
#include "bench/steps/step_sides.hpp"

namespace train::bench {
namespace {

/// Measures the library's products of a step beside each round.
Comparison compare_with_gemm(const Workplace& place, const StepCase& one, const Length& length) {
  const run::RunPlan plan = plan_of_case(place, one);
  const std::int64_t lane_rows = plan.engine.batch.micro_batch * plan.engine.seq_len;
  const std::vector<Product> products = products_of(plan.engine.model, lane_rows);
  return compare(place, one, length, [&](Comparison& result) {
    result.gemm_s.add(library_seconds(products, run::resolve_threads(0)) *
                      static_cast<double>(plan.engine.batch.lanes));
  });
}

/// Prints the FLOP/s of the step relative to sgemm at the step's own shapes.
void print_gemm_share(const Workplace& place, const StepCase& one, const Comparison& result) {
  const run::RunPlan plan = plan_of_case(place, one);
  const double lanes = static_cast<double>(plan.engine.batch.lanes);
  const auto products =
      products_of(plan.engine.model, plan.engine.batch.micro_batch * plan.engine.seq_len);
  const double step_flops =
      engine::flops_per_token(plan.engine.model, plan.engine.seq_len) * tokens_of_step(plan);
  const double gemm_flops = flops_of(products) * lanes;
  Values share;
  for (std::size_t i = 0; i < result.ours_s.all.size(); ++i) {
    share.add(step_flops / result.ours_s.all[i] / (gemm_flops / result.gemm_s.all[i]));
  }
  print_result(fmt::format("{}: step, GFLOP/s", one.name),
               per_second(result.ours_s, step_flops * 1e-9).text(0));
  print_result(fmt::format("{}: sgemm at its shapes, GFLOP/s", one.name),
               per_second(result.gemm_s, gemm_flops * 1e-9).text(0));
  print_at_least(fmt::format("{}: step / sgemm, FLOP/s", one.name), share, 0.75);
}

void speed_only(const Workplace& place, const StepCase& one, const Length& length, double target) {
  print_speeds(place, one, compare(place, one, length), target);
}

}  // namespace

void gpt2_row(const Workplace& place) {
  const StepCase one = gpt2_case(1024, 1, 1);
  const Comparison result =
      compare_with_gemm(place, one, {.rounds = 3, .steps = 2, .dropped = 2, .thorough = false});
  print_gemm_share(place, one, result);
  print_speeds(place, one, result, 1.5);
  print_memory(one, result, 2.5);
}

void checkpointed_row(const Workplace& place) {
  StepCase one = gpt2_case(1024, 1, 1);
  one.keys.push_back("memory.activation_checkpointing=3");
  one.keys.push_back("memory.checkpointed_part=\"mlp\"");
  const Comparison result =
      compare(place, one, {.rounds = 3, .steps = 2, .dropped = 2, .thorough = false});
  print_speeds(place, one, result, 1.5);
  print_memory(one, result, 2.5);
}

void gpt2_lanes_row(const Workplace& place) {
  const StepCase one = gpt2_case(1024, 1, 4);
  const Comparison result =
      compare_with_gemm(place, one, {.rounds = 2, .steps = 1, .dropped = 1, .thorough = false});
  print_gemm_share(place, one, result);
  print_speeds(place, one, result, 1.5);
}

void short_row(const Workplace& place) {
  speed_only(place, gpt2_case(64, 4, 1), {.rounds = 5, .steps = 4, .dropped = 2}, 1.2);
}

void quickstart_row(const Workplace& place) {
  speed_only(place, quickstart_case(), {.rounds = 7, .steps = 20, .dropped = 2}, 2.0);
}

void qwen3_row(const Workplace& place) {
  speed_only(place, qwen3_case(), {.rounds = 5, .steps = 3, .dropped = 2}, 1.5);
}

void determinism_price_row(const Workplace& place) {
  struct Priced {
    StepCase one;
    Length length;
  };
  for (const Priced& priced :
       {Priced{quickstart_case(), {.rounds = 6, .steps = 16, .dropped = 2}},
        Priced{gpt2_case(64, 4, 8), {.rounds = 3, .steps = 2, .dropped = 1}}}) {
    Values price;
    for (int round = 0; round < priced.length.rounds; ++round) {
      double seconds[2] = {};
      for (const int turn : {round % 2, 1 - round % 2}) {  // Alternates, so that a slow drift
                                                           // favours neither.
        const char* determinism = turn == 1 ? "world" : "run";
        seconds[turn] =
            run_ours(place, priced.one, priced.length.steps, priced.length.dropped,
                     {"batch.lanes=8", fmt::format("precision.determinism=\"{}\"", determinism)})
                .seconds;
      }
      price.add(seconds[1] / seconds[0] - 1.0);
    }
    print_at_most(fmt::format("{}: price of \"world\"", priced.one.name), price, 0.03);
  }
}

void bf16_row(const Workplace& place) {
  print_bf16_gain(place, gpt2_case(1024, 1, 1), {.rounds = 5, .steps = 2, .dropped = 1}, 1.6);
  print_bf16_gain(place, quickstart_case(), {.rounds = 7, .steps = 20, .dropped = 2}, 1.0);
  StepCase one = gpt2_case(1024, 1, 1);
  one.keys.push_back("precision.compute=\"bf16\"");
  print_shares(place, one, "124M, T 1024, bf16", 4);
}

void shares_row(const Workplace& place) {
  print_shares(place, gpt2_case(1024, 1, 1), "124M, T 1024", 4);
  print_shares(place, gpt2_case(64, 4, 1), "124M, T 64", 8);
  print_shares(place, quickstart_case(), "quickstart", 40);
  print_shares(place, qwen3_case(), "qwen3 2 heads", 6);
}

}  // namespace train::bench
