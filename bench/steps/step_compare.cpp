#include "bench/steps/step_compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "bench/steps/step_sides.hpp"

namespace train::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kEnoughSeconds = 100.0;

std::unique_ptr<TorchPeer> start_peer(const Workplace& place, const StepCase& one,
                                      const std::string& mode, bool choose_way) {
  auto peer = std::make_unique<TorchPeer>(place, one, mode, choose_way);
  print_result(fmt::format("{}: PyTorch {}, {}", one.name, peer->version(), mode),
               fmt::format("first loss {:.3f}; {}; products at {:.0f} GFLOP/s", peer->first_loss(),
                           peer->way(), peer->gemm_flops() * 1e-9));
  return peer;
}

/// Checks that both sides' first losses are about equal, near that of guessing.
void check_first_loss(const Workplace& place, const StepCase& one, double ours, double theirs) {
  constexpr double kFarFromGuessing = 1.0;
  const double guessing =
      std::log(static_cast<double>(plan_of_case(place, one).engine.model.vocab_size));
  if (std::abs(ours - guessing) > kFarFromGuessing || std::abs(ours - theirs) > one.same_loss) {
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
  check_first_loss(place, one, ours.first_loss, eager->first_loss());
  if (compiled == nullptr) {
    print_result(fmt::format("{}: a step of ours, eager, s", one.name),
                 fmt::format("{:.3f}, {:.3f}", ours.seconds, one_way.seconds));
    result.eager_s.add(one_way.seconds);
    result.ratio.add(one_way.seconds / ours.seconds);
    result.their_bytes.add(one_way.peak_bytes);
    return;
  }
  const StepTimes other_way = compiled->run(length.steps, waking);
  check_first_loss(place, one, ours.first_loss, compiled->first_loss());
  print_result(
      fmt::format("{}: a step of ours, eager, compiled, s", one.name),
      fmt::format("{:.3f}, {:.3f}, {:.3f}", ours.seconds, one_way.seconds, other_way.seconds));
  result.eager_s.add(one_way.seconds);
  result.compiled_s.add(other_way.seconds);
  result.ratio.add(std::min(one_way.seconds, other_way.seconds) / ours.seconds);
  result.their_bytes.add(std::min(one_way.peak_bytes, other_way.peak_bytes));
}

}  // namespace

Comparison compare(const Workplace& place, const StepCase& one, const Length& length,
                   const std::function<void(Comparison&)>& after_round) {
  std::unique_ptr<TorchPeer> eager;
  std::unique_ptr<TorchPeer> compiled;
  if (torch_python()) {
    eager = start_peer(place, one, "eager", length.thorough);
    if (length.compiled) {
      compiled = start_peer(place, one, "compiled", length.thorough);
    }
  }
  Comparison result;
  const auto begin = Clock::now();
  for (int round = 0; round < length.rounds; ++round) {
    if (round >= 3 &&
        std::chrono::duration<double>(Clock::now() - begin).count() > kEnoughSeconds) {
      break;
    }
    run_round(place, one, length, eager.get(), compiled.get(), result);
    if (after_round) {
      after_round(result);
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

double tokens_of_step(const run::RunPlan& plan) {
  return static_cast<double>(plan.engine.batch.lanes * plan.engine.batch.micro_batch *
                             plan.engine.seq_len);
}

void print_speeds(const Workplace& place, const StepCase& one, const Comparison& result,
                  double target) {
  const run::RunPlan plan = plan_of_case(place, one);
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
  if (!result.compiled_s.all.empty() || result.eager_s.all.empty()) {
    print_result(fmt::format("{}: PyTorch compiled, tokens/s", one.name), speed(result.compiled_s));
  }
  if (!result.ratio.all.empty()) {
    print_at_least(fmt::format("{}: ours / the better of both", one.name), result.ratio, target);
  }
}

void print_memory(const StepCase& one, const Comparison& result,
                  std::optional<double> most_gigabytes) {
  Values gigabytes;
  Values ratio;
  for (std::size_t i = 0; i < result.our_bytes.all.size(); ++i) {
    gigabytes.add(result.our_bytes.all[i] * 1e-9);
    if (!result.their_bytes.all.empty()) {
      ratio.add(result.our_bytes.all[i] / result.their_bytes.all[i]);
    }
  }
  const std::string ours = fmt::format("{}: peak memory, GB", one.name);
  if (most_gigabytes) {
    print_at_most(ours, gigabytes, *most_gigabytes);
  } else {
    print_result(ours, gigabytes.text(2));
  }
  if (!ratio.all.empty()) {
    print_result(fmt::format("{}: PyTorch's peak memory, GB", one.name),
                 fmt::format("{:.2f}", result.their_bytes.median() * 1e-9));
    print_at_most(fmt::format("{}: peak memory / PyTorch's", one.name), ratio, 0.6);
  }
}

}  // namespace train::bench
