// Model of a step, first compared with runs on this machine, then applied to larger numbers of
// ranks.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "bench/ranks/ranks_rows.hpp"
#include "bench/ranks/simulate_measure.hpp"
#include "configs/load_config.hpp"
#include "run/plan/run_plan.hpp"

namespace train::bench {
namespace {

using Options = engine::RankOptions;

constexpr int kCores = 2;  // Cores of the machine that the rows are meant for.

Options options_of(const Workplace& place, const Words& keys) {
  const auto config = configs::load_config(ACTORTRAIN_SOURCE_DIR "/configs/quickstart.toml",
                                           joined(place.keys(), keys));
  if (!config) {
    throw std::runtime_error(config.error().message);
  }
  const auto options = run::engine_options(*config, 0);
  if (!options) {
    throw std::runtime_error(options.error().message);
  }
  return *options;
}

Words plan_keys(std::int64_t ranks, std::int64_t lanes, const std::string& strategy) {
  return {fmt::format("parallel.ranks={}", ranks), fmt::format("batch.lanes={}", lanes),
          fmt::format("parallel.strategy=\"{}\"", strategy)};
}

struct Case {
  int ranks;
  const char* strategy;
};

/// Kernels are measured right before the run they are compared with, with as many active processes
/// as cores allow.
void validate(const Workplace& place, const Shape& shape, const Case& one,
              const engine::LinkModel& link) {
  const Words keys = joined(shape.keys, plan_keys(one.ranks, 8, one.strategy));
  Values ratios;
  Values modelled_ms;
  Values real_ms;
  Values exposed;
  for (int i = 0; i < 2; ++i) {
    const engine::ModelledStep step = engine::model_step(
        options_of(place, keys),
        {.kernels = measure_kernels(options_of(place, joined(shape.keys, plan_keys(1, 8, "none"))),
                                    std::min(one.ranks, kCores)),
         .link = link,
         .slowdown = std::max(1.0, static_cast<double>(one.ranks) / kCores)});
    const RunOutcome real = run_program(place, {joined(keys, {"run.steps=12"})});
    modelled_ms.add(step.step_seconds * 1e3);
    real_ms.add(real.step_seconds * 1e3);
    ratios.add(step.step_seconds / real.step_seconds);
    exposed.add(step.exposed_seconds / step.step_seconds);
  }
  print_result(
      fmt::format("{}, {} ranks, {}: a step, model; real, ms", shape.name, one.ranks, one.strategy),
      fmt::format("{}; {}", modelled_ms.text(1), real_ms.text(1)));
  print_result("    model / real; exposed in the model / step",
               fmt::format("{}; {}", ratios.text(3), exposed.text(3)));
}

void validate_all(const Workplace& place) {
  const engine::LinkModel link = measure_loopback();
  print_result("loopback: exchange of 64 B; 1 MB; processor",
               fmt::format("{:.0f} us; {:.2f} GB/s; {:.2f} ns/B", 2e6 * link.latency_seconds,
                           1e-9 * link.bytes_per_second, 1e9 * link.processor_per_byte));
  for (const Case& one : {Case{1, "none"}, Case{2, "none"}, Case{2, "full"}, Case{4, "full"}}) {
    validate(place, quickstart_shape(), one, link);
  }
  fmt::print("  Ranks have one thread each; on {} cores 4 ranks take turns, each at half speed.\n",
             kCores);
}

/// Predicted speed of `ranks` relative to one: weak scaling if lanes grow with ranks.
void project(const Workplace& place, const Shape& shape, const char* strategy,
             const engine::StepModelOptions& model) {
  constexpr std::int64_t kStrongLanes = 512;
  const auto step = [&](std::int64_t ranks, std::int64_t lanes) {
    const char* used = ranks == 1 ? "none" : strategy;
    return engine::model_step(options_of(place, joined(shape.keys, plan_keys(ranks, lanes, used))),
                              model)
        .step_seconds;
  };
  const double weak_base = step(1, 8);
  const double strong_base = step(1, kStrongLanes);
  struct World {
    std::int64_t ranks;
    double target;
  };
  for (const World& one : {World{8, 7.7}, World{64, 60.0}, World{512, 450.0}}) {
    const auto ranks = static_cast<double>(one.ranks);
    print_at_least(fmt::format("{}, {}, {} ranks, 8 lanes each", shape.name, strategy, one.ranks),
                   Values{{ranks * weak_base / step(one.ranks, 8 * one.ranks)}}, one.target);
    print_result(fmt::format("{}, {}, {} ranks, {} lanes together (no target)", shape.name,
                             strategy, one.ranks, kStrongLanes),
                 fmt::format("{:.1f}", strong_base / step(one.ranks, kStrongLanes)));
  }
}

}  // namespace

void ceiling_row(const Workplace& place) {
  const Options options = options_of(place, plan_keys(1, 8, "none"));
  Values ratios;
  for (int i = 0; i < 3; ++i) {
    const double alone = lane_seconds(measure_kernels(options, 1));
    ratios.add(2.0 * alone / lane_seconds(measure_kernels(options, 2)));
  }
  print_result("quickstart: lanes of 2 processes that never talk / of 1", ratios.text(3));
}

void simulate_row(const Workplace& place) {
  validate_all(place);
  const engine::LinkModel fabric{.latency_seconds = 5e-6,
                                 .bytes_per_second = 12.5e9,
                                 .message_seconds = 1e-6,
                                 .processor_per_byte = 0.0};
  fmt::print(
      "  Assumed: kernels as measured here on 1 thread, the same on every rank, no jitter; each "
      "rank\n  has a core for the transport and a link of its own of 100 Gbit/s each way, 5 us, "
      "1 us more for\n  each peer of an exchange; no congestion between links; what actors say "
      "to each other is free.\n");
  const Options quickstart = options_of(place, plan_keys(1, 8, "none"));
  const engine::StepModelOptions small{.kernels = measure_kernels(quickstart, 1), .link = fabric};
  const Options shallow = options_of(
      place, joined(gpt2_shape().keys, joined({"model.layers=2"}, plan_keys(1, 8, "none"))));
  const engine::StepModelOptions large{.kernels = with_layers(measure_kernels(shallow, 1), 12),
                                       .link = fabric};
  for (const char* strategy : {"none", "full"}) {
    project(place, quickstart_shape(), strategy, small);
    project(place, gpt2_shape(), strategy, large);
  }
}

}  // namespace train::bench
