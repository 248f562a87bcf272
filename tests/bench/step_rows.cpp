#include "tests/bench/step_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "tests/bench/step_gemm.hpp"
#include "tests/bench/step_sides.hpp"

namespace train::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kEnoughSeconds = 100.0;

/// How long a comparison lasts.
struct Length {
  int rounds = 3;   ///< At most: after three of them none begins once `kEnoughSeconds` are over.
  int steps = 3;    ///< Of each side in a round.
  int dropped = 2;  ///< First steps of ours: they fill caches and pages.
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

std::unique_ptr<TorchPeer> start_peer(const Workplace& place, const StepCase& one,
                                      const std::string& mode, bool choose_way) {
  auto peer = std::make_unique<TorchPeer>(place, one, mode, choose_way);
  print_result(fmt::format("{}: PyTorch {}, {}", one.name, peer->version(), mode),
               fmt::format("first loss {:.3f}; {}; products at {:.0f} GFLOP/s", peer->first_loss(),
                           peer->way(), peer->gemm_flops() * 1e-9));
  return peer;
}

/// One model on both sides begins with about the same loss, near that of guessing.
void check_first_loss(const Workplace& place, const StepCase& one, double ours, double theirs) {
  constexpr double kFarFromGuessing = 1.0;
  constexpr double kSame = 0.15;
  const double guessing =
      std::log(static_cast<double>(plan_of_case(place, one).engine.model.vocab_size));
  if (std::abs(ours - guessing) > kFarFromGuessing || std::abs(ours - theirs) > kSame) {
    throw std::runtime_error(
        fmt::format("not the same model: first loss {:.3f} here, {:.3f} "
                    "there, {:.3f} by guessing",
                    ours, theirs, guessing));
  }
}

void run_round(const Workplace& place, const StepCase& one, const Length& length, TorchPeer* eager,
               TorchPeer* compiled, Comparison& result) {
  const StepTimes ours = run_ours(place, one, length.steps, length.dropped);
  result.ours_s.add(ours.seconds);
  result.our_bytes.add(ours.peak_bytes);
  result.first_loss = ours.first_loss;
  if (eager == nullptr) {
    return;
  }
  const int waking = length.thorough ? 1 : 0;
  const StepTimes one_way = eager->run(length.steps, waking);
  const StepTimes other_way = compiled->run(length.steps, waking);
  check_first_loss(place, one, ours.first_loss, eager->first_loss());
  check_first_loss(place, one, ours.first_loss, compiled->first_loss());
  print_result(
      fmt::format("{}: a step of ours, eager, compiled, s", one.name),
      fmt::format("{:.3f}, {:.3f}, {:.3f}", ours.seconds, one_way.seconds, other_way.seconds));
  result.eager_s.add(one_way.seconds);
  result.compiled_s.add(other_way.seconds);
  result.ratio.add(std::min(one_way.seconds, other_way.seconds) / ours.seconds);
  result.their_bytes.add(std::min(one_way.peak_bytes, other_way.peak_bytes));
}

Comparison compare(const Workplace& place, const StepCase& one, const Length& length,
                   bool with_gemm) {
  std::unique_ptr<TorchPeer> eager;
  std::unique_ptr<TorchPeer> compiled;
  if (torch_python()) {
    eager = start_peer(place, one, "eager", length.thorough);
    compiled = start_peer(place, one, "compiled", length.thorough);
  }
  const actors::RunPlan plan = plan_of_case(place, one);
  const std::int64_t lane_rows = plan.engine.batch.micro_batch * plan.engine.seq_len;
  const std::vector<Product> products = products_of(plan.engine.model, lane_rows);
  Comparison result;
  const auto begin = Clock::now();
  for (int round = 0; round < length.rounds; ++round) {
    if (round >= 3 &&
        std::chrono::duration<double>(Clock::now() - begin).count() > kEnoughSeconds) {
      break;
    }
    run_round(place, one, length, eager.get(), compiled.get(), result);
    if (with_gemm) {
      result.gemm_s.add(library_seconds(products, actors::resolve_threads(0)) *
                        static_cast<double>(plan.engine.batch.lanes));
    }
  }
  return result;
}

Values per_second(const Values& seconds, double amount) {
  Values result;
  for (const double each : seconds.all) {
    result.add(amount / each);
  }
  return result;
}

double tokens_of_step(const actors::RunPlan& plan) {
  return static_cast<double>(plan.engine.batch.lanes * plan.engine.batch.micro_batch *
                             plan.engine.seq_len);
}

void print_speeds(const Workplace& place, const StepCase& one, const Comparison& result,
                  double target) {
  const actors::RunPlan plan = plan_of_case(place, one);
  print_result(
      fmt::format("{}: weights; our first loss; that of guessing", one.name),
      fmt::format("{}; {:.3f}; {:.3f}", engine::count_parameters(plan.engine.model).total,
                  result.first_loss, std::log(static_cast<double>(plan.engine.model.vocab_size))));
  const double tokens = tokens_of_step(plan);
  const auto speed = [&](const Values& seconds) {
    return seconds.all.empty() ? std::string("PyTorch is not installed")
                               : per_second(seconds, tokens).text(0);
  };
  print_result(fmt::format("{}: ours, tokens/s", one.name), speed(result.ours_s));
  print_result(fmt::format("{}: PyTorch eager, tokens/s", one.name), speed(result.eager_s));
  print_result(fmt::format("{}: PyTorch compiled, tokens/s", one.name), speed(result.compiled_s));
  if (!result.ratio.all.empty()) {
    print_at_least(fmt::format("{}: ours / the better of both", one.name), result.ratio, target);
  }
}

/// FLOP/s of the step over those of sgemm at the step's own shapes.
void print_gemm_share(const Workplace& place, const StepCase& one, const Comparison& result) {
  const actors::RunPlan plan = plan_of_case(place, one);
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

void print_memory(const StepCase& one, const Comparison& result) {
  Values gigabytes;
  Values ratio;
  for (std::size_t i = 0; i < result.our_bytes.all.size(); ++i) {
    gigabytes.add(result.our_bytes.all[i] * 1e-9);
    if (!result.their_bytes.all.empty()) {
      ratio.add(result.our_bytes.all[i] / result.their_bytes.all[i]);
    }
  }
  print_at_most(fmt::format("{}: peak memory, GB", one.name), gigabytes, 2.5);
  if (!ratio.all.empty()) {
    print_result(fmt::format("{}: PyTorch's peak memory, GB", one.name),
                 fmt::format("{:.2f}", result.their_bytes.median() * 1e-9));
    print_at_most(fmt::format("{}: peak memory / PyTorch's", one.name), ratio, 0.6);
  }
}

void speed_only(const Workplace& place, const StepCase& one, const Length& length, double target) {
  print_speeds(place, one, compare(place, one, length, false), target);
}

}  // namespace

void gpt2_row(const Workplace& place) {
  const StepCase one = gpt2_case(1024, 1, 1);
  const Comparison result =
      compare(place, one, {.rounds = 3, .steps = 2, .dropped = 2, .thorough = false}, true);
  print_gemm_share(place, one, result);
  print_speeds(place, one, result, 1.5);
  print_memory(one, result);
}

void gpt2_lanes_row(const Workplace& place) {
  const StepCase one = gpt2_case(1024, 1, 4);
  const Comparison result =
      compare(place, one, {.rounds = 2, .steps = 1, .dropped = 1, .thorough = false}, true);
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
      for (const int turn : {round % 2, 1 - round % 2}) {  // a slow drift favours none
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

}  // namespace train::bench
