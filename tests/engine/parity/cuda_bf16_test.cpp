// precision.compute = "bf16" on a device whose kernels know it: weights, activations and their
// gradients are bf16 in memory, masters, sums and gradients of weights fp32.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "engine/host_state.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::engine::cuda_bf16_test {
namespace {

/// Few rows: an emulated device takes milliseconds for each.
WorldStep::Options options_of(Architecture architecture, const std::string& compute) {
  auto options = testing::small_options(architecture);
  options.batch.lanes = 1;
  options.batch.micro_batch = 1;
  options.seq_len = 16;
  options.eval_lanes = 1;
  options.optimizer.lr = 1e-3;
  options.optimizer.grad_clip = 1.0;
  options.precision.compute = compute;
  return options;
}

/// Losses of `steps` steps, then that of an evaluation.
std::vector<double> losses_of(const kernels::KernelTable& kernels,
                              const WorldStep::Options& options, std::int64_t steps) {
  const auto text = testing::repeating_text(options);
  const auto stream = kernels.device->make_stream("compute", 2);
  WorldStep world(kernels, options);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    const StepResult result = world.run(*stream, step, text);
    REQUIRE_FALSE(result.nonfinite);
    losses.push_back(result.loss);
  }
  losses.push_back(world.evaluate(*stream, text).cross_entropy);
  return losses;
}

/// Every rank's rows, those without masters too, from one world to another of the same plan.
void restore(WorldStep& world, const WorldStep& from, std::int64_t ranks) {
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    HostState saved(from.rank(rank).device(), from.rank(rank).state().views());
    saved.load();
    HostState rows(world.rank(rank).device(), world.rank(rank).state().views());
    for (std::size_t i = 0; i < rows.views().size(); ++i) {
      const StateView& view = saved.views()[i];
      std::copy_n(view.data, view.size_bytes, rows.views()[i].data);
    }
    rows.store();
    world.rank(rank).state().finalize_restored();
  }
}

/// What ranks must agree on, bit for bit; the second step is that of another world that goes on.
std::vector<std::uint64_t> trace_of(const WorldStep::Options& options) {
  const kernels::KernelTable& kernels = *kernels::cuda_backend();
  const auto text = testing::repeating_text(options);
  const auto stream = kernels.device->make_stream("compute", 1);
  WorldStep first(kernels, options);
  auto other_start = options;
  other_start.init.seed += 1;
  WorldStep second(kernels, other_start);
  std::vector<std::uint64_t> trace;
  for (const std::int64_t step : {0, 1}) {
    WorldStep& world = step == 0 ? first : second;
    const StepResult result = world.run(*stream, step, text);
    trace.push_back(std::bit_cast<std::uint64_t>(result.loss));
    trace.push_back(std::bit_cast<std::uint64_t>(result.grad_norm));
    trace.push_back(world.digest());
    if (step == 0) {
      restore(second, first, options.parallel.ranks);
    }
  }
  trace.push_back(std::bit_cast<std::uint64_t>(second.evaluate(*stream, text).cross_entropy));
  return trace;
}

}  // namespace

TEST_CASE("cuda bf16: steps have nearly the losses of fp32", "[.gpu][engine]") {
  if (kernels::testing::no_device()) {
    return;
  }
  const auto architecture = GENERATE(Architecture::enoki, Architecture::dstar_qwen3);
  const std::int64_t steps = kernels::testing::emulated_device() ? 12 : 50;
  const auto fp32 = losses_of(kernels::cpu_backend(), options_of(architecture, "fp32"), steps);
  const auto bf16 = losses_of(*kernels::cuda_backend(), options_of(architecture, "bf16"), steps);
  double worst = 0.0;
  for (std::size_t i = 0; i < fp32.size(); ++i) {
    worst = std::max(worst, std::abs(bf16[i] - fp32[i]));
  }
  fmt::print("{} steps of {} in bf16: loss {:.4f} to {:.4f}, off fp32 by {:.2e} at most\n", steps,
             architecture == Architecture::enoki ? "enoki" : "qwen3", bf16.front(), bf16.back(),
             worst);
  CHECK(bf16.back() < bf16.front());
  // A value goes through eight roundings or so of 2^-8 between its token and its logit, in two
  // blocks and the head, each of either sign; those of fp32 alone would stay below 1e-5.
  CHECK(worst <= std::sqrt(8.0) / 256.0 * fp32.front());
  CHECK(worst > 1e-5);
}

TEST_CASE("cuda bf16: any number of ranks has the same bits", "[.gpu][drawn][engine][P1]") {
  if (kernels::testing::no_device()) {
    return;
  }
  auto options = options_of(Architecture::enoki, "bf16");
  options.batch.lanes = 4;
  options.seq_len = 8;
  const std::vector<std::uint64_t> alone = trace_of(options);
  struct Layout {
    std::int64_t ranks;
    std::string strategy;
    std::string offload = "none";
    std::string weights = "kept";  ///< Or made of the masters.
  };
  const std::vector<Layout> layouts = {{2, "none"},
                                       {3, "optimizer"},
                                       {2, "gradient"},
                                       {3, "full"},
                                       {4, "hybrid"},
                                       {2, "none", "optimizer"},
                                       {2, "none", "parameters"},
                                       {2, "full", "optimizer"},
                                       {2, "full", "parameters"},
                                       {2, "none", "none", "made"},
                                       {2, "full", "none", "made"},
                                       {1, "none", "none", "made"}};
  for (const Layout& layout : kernels::testing::drawn_if_emulated(layouts, 6)) {
    INFO(layout.ranks << " ranks, " << layout.strategy << ", left to the host: " << layout.offload
                      << ", weights " << layout.weights);
    auto other = options;
    other.parallel.ranks = layout.ranks;
    other.parallel.strategy = layout.strategy;
    other.parallel.group = layout.strategy == "hybrid" ? layout.ranks / 2 : 0;
    other.memory.offload = layout.offload;
    other.memory.bf16_weights = layout.weights;
    CHECK(trace_of(other) == alone);
  }
  options.precision.compute = "fp32";
  CHECK(trace_of(options) != alone);
}

TEST_CASE("cuda bf16: memory is what was planned, and half of fp32's", "[.gpu][engine]") {
  if (kernels::testing::no_device()) {
    return;
  }
  auto options = options_of(Architecture::dstar_qwen3, "bf16");
  options.batch.lanes = 2;
  options.parallel.ranks = 2;
  options.parallel.strategy = "full";
  const WorldStep bf16(*kernels::cuda_backend(), options);
  const MemoryPlan half = bf16.rank(0).allocated();
  CHECK(half == plan_memory(bf16.rank(0).options()));
  options.parallel.strategy = "none";
  const WorldStep kept(*kernels::cuda_backend(), options);
  options.memory.bf16_weights = "made";
  const WorldStep made(*kernels::cuda_backend(), options);
  const MemoryPlan less = made.rank(0).allocated();
  CHECK(less == plan_memory(made.rank(0).options()));
  CHECK(less.parameters_bytes * 3 == kept.rank(0).allocated().parameters_bytes * 2);
  CHECK(less.gathered_bytes > 0);
  CHECK(less.gathered_bytes * 2 < less.parameters_bytes);
  options.memory.bf16_weights = "kept";
  options.parallel.strategy = "full";
  options.precision.compute = "fp32";
  const WorldStep fp32(*kernels::cuda_backend(), options);
  const MemoryPlan whole = fp32.rank(0).allocated();
  CHECK(half.gathered_bytes * 2 == whole.gathered_bytes);
  CHECK(half.activations_bytes < whole.activations_bytes);
  CHECK(half.gradients_bytes == whole.gradients_bytes);
  CHECK(half.optimizer_bytes == whole.optimizer_bytes);
}

}  // namespace train::engine::cuda_bf16_test
