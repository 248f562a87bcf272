// P1 on a device: what decides where memory lies and in which order work is enqueued, with the
// CPU's kernels. Any access of the host to memory of the device ends the test with its trace.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "configs/fields/optimizer_table.hpp"
#include "engine/host_state.hpp"
#include "engine/optimizer/optimizer.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/devices/guarded_memory.hpp"

namespace train::engine {
namespace {

using Options = WorldStep::Options;
using Bytes = std::vector<std::byte>;

/// Everything that a run leaves, bit for bit.
struct Trace {
  std::vector<std::uint64_t> values;  ///< Of losses, norms, evaluations and diagnostics.
  std::vector<std::uint64_t> digests;
  std::vector<Bytes> state;

  void add(double value) { values.push_back(std::bit_cast<std::uint64_t>(value)); }
  friend bool operator==(const Trace&, const Trace&) = default;
};

Options options_of(const std::string& optimizer, std::int64_t ranks = 1,
                   const std::string& strategy = "none") {
  Options options = testing::small_options(Architecture::enoki);
  options.batch.lanes = 5;
  options.eval_lanes = 3;
  options.total_steps = 4;
  options.optimizer = configs::default_optimizer(optimizer);
  options.optimizer.lr = 5e-3;
  options.optimizer.grad_clip = 0.1;
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.parallel.group = strategy == "hybrid" ? ranks / 2 : 0;
  return options;
}

std::vector<Bytes> saved(const WorldStep& world, std::int64_t ranks) {
  std::vector<Bytes> state;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    HostState rows(world.rank(rank).device(), world.rank(rank).state().views());
    rows.load();
    for (const StateView& view : rows.views()) {
      state.emplace_back(view.data, view.data + view.size_bytes);
    }
  }
  return state;
}

void restore(WorldStep& world, std::int64_t ranks, const std::vector<Bytes>& state) {
  auto next = state.begin();
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    HostState rows(world.rank(rank).device(), world.rank(rank).state().views());
    for (StateView& view : rows.views()) {
      REQUIRE(next->size() == view.size_bytes);
      std::copy(next->begin(), next->end(), view.data);
      ++next;
    }
    rows.store();
    world.rank(rank).state().finalize_restored();
  }
}

StepResult run_step(WorldStep& world, kernels::Stream& stream, std::int64_t step,
                    const WorldStep::ReadLane& text) {
  if (!world.rank(0).rank_plan().objective().several_passes()) {
    return world.run(stream, step, text);
  }
  const WorldStep::FillLane rows = [&](std::int64_t of_step, std::int64_t lane,
                                       const LaneSlot& slot) {
    text(of_step, lane, slot.tokens.data(), slot.targets.data());
    std::fill(slot.positions.begin(), slot.positions.end(), 0);
    std::fill(slot.weights.begin(), slot.weights.end(), 1.0F);
  };
  return world.run_passes(stream, step, {rows, rows});
}

/// Two steps, an evaluation and a probe; then another world resumes from what was saved.
Trace run(const kernels::KernelTable& kernels, const Options& options) {
  test::watch_device_memory();
  Trace trace;
  const auto text = testing::repeating_text(options);
  const std::int64_t ranks = options.parallel.ranks;
  const auto stream = kernels.device->make_stream("compute", 2);
  for (const std::int64_t first : {0, 2}) {
    WorldStep world(kernels, options);
    if (first > 0) {
      restore(world, ranks, trace.state);
    }
    for (std::int64_t step = first; step < first + 2; ++step) {
      const StepResult result = run_step(world, *stream, step, text);
      REQUIRE_FALSE(result.nonfinite);
      trace.add(result.loss);
      trace.add(result.grad_norm);
      for (const double norm : result.unit_grad_norms) {
        trace.add(norm);
      }
      for (const double metric : result.metrics) {
        trace.add(metric);
      }
      for (const auto& each : diagnose(world.rank(0).optimizer(), result.optimizer_sums)) {
        trace.add(each.value);
      }
      trace.digests.push_back(world.digest());
    }
    const EvaluationResult evaluation = world.evaluate(*stream, text);
    trace.add(evaluation.cross_entropy);
    trace.add(evaluation.accuracy);
    CHECK_FALSE(world.find_nonfinite(*stream, 4, text).found);
    trace.state = saved(world, ranks);
  }
  return trace;
}

void check_device(const Options& options) {
  const Trace cpu = run(kernels::cpu_backend(), options);
  const Trace device = run(*kernels::cuda_backend(), options);
  CHECK((device.values == cpu.values));
  CHECK((device.digests == cpu.digests));
  CHECK((device.state == cpu.state));
}

TEST_CASE("guarded device: every optimizer trains as on the CPU, bit for bit", "[guarded][P1]") {
  const std::string optimizer =
      GENERATE("adamw", "adamw-decaying-wd", "dana-star-mk4", "ademamix", "muon");
  INFO(optimizer);
  check_device(options_of(optimizer));
}

TEST_CASE("guarded device: every architecture and precision trains as on the CPU",
          "[guarded][P1]") {
  Options options = options_of("adamw");
  SECTION("bf16 weights") { options.precision.compute = "bf16"; }
  SECTION("activations computed again") {
    options.memory.activation_checkpointing = std::string("all");
  }
  SECTION("optimizer state left to the host") { options.memory.offload = "optimizer"; }
  SECTION("masters of bf16 weights left to the host") {
    options.precision.compute = "bf16";
    options.memory.offload = "parameters";
  }
  SECTION("tied embeddings") { options.model.tie_embeddings = true; }
  SECTION("frozen units") { options.train.freeze = {"block 0"}; }
  SECTION("frozen bf16 weights") {
    options.train.freeze = {"embedding", "block 0", "*.mlp.*"};
    options.precision.compute = "bf16";
  }
  SECTION("sums in order of arrival") { options.precision.determinism = std::string("run"); }
  SECTION("qwen3") { options.model = testing::small_shape(Architecture::dstar_qwen3); }
  check_device(options);
}

TEST_CASE("guarded device: ranks exchange by way of the host, bit for bit", "[guarded][P1]") {
  const std::string strategy = GENERATE("none", "optimizer", "gradient", "full");
  const std::string optimizer = GENERATE("adamw", "dana-star-mk4");
  const std::int64_t ranks = GENERATE(2, 3);
  INFO(ranks << " ranks, " << strategy << ", " << optimizer);
  Options options = options_of(optimizer, ranks, strategy);
  SECTION("fp32") {}
  SECTION("bf16") { options.precision.compute = options.precision.reduce = "bf16"; }
  SECTION("state left to the host") { options.memory.offload = "parameters"; }
  SECTION("frozen bf16 weights") {
    options.precision.compute = "bf16";
    options.train.freeze = {"block 0", "*.mlp.*"};
  }
  check_device(options);
}

TEST_CASE("guarded device: groups of ranks, and rows kept for the backward pass", "[guarded][P1]") {
  Options options = options_of("adamw", 4, "hybrid");
  SECTION("hybrid") {}
  SECTION("reshard") {
    options.parallel.strategy = std::string("full");
    options.parallel.group = 0;
    options.parallel.reshard = std::string("2");
  }
  check_device(options);
}

TEST_CASE("guarded device: steps of two passes, and what they compare weights with",
          "[guarded][P1]") {
  const std::int64_t ranks = GENERATE(1, 3);
  const std::string forget_loss = GENERATE("random_targets", "max_update");
  INFO(ranks << " ranks, " << forget_loss);
  Options options = options_of("adamw", ranks, ranks == 1 ? "none" : "full");
  options.model.z_loss_coeff = 0.0F;
  options.objective.name = "sequential_unlearning";
  options.objective.first_layer = 1;
  options.objective.layer_stride = 1;
  options.objective.steps_per_layer = 2;
  options.objective.forget_loss = forget_loss;
  options.objective.l2sp_coefficient = 0.1;
  options.objective.gradient_join = "same_sign_forget";
  SECTION("fp32") {}
  SECTION("bf16") { options.precision.compute = "bf16"; }
  SECTION("masters left to the host") { options.memory.offload = "parameters"; }
  check_device(options);
}

TEST_CASE("guarded device: a probe finds where values stop being finite", "[guarded]") {
  test::watch_device_memory();
  const Options options = options_of("adamw");
  const kernels::KernelTable& kernels = *kernels::cuda_backend();
  const auto stream = kernels.device->make_stream("compute", 1);
  WorldStep world(kernels, options);
  HostState rows(world.rank(0).device(), world.rank(0).state().views());
  rows.load();
  for (StateView& view : rows.views()) {
    if (view.name == "model.transformer.h.1.attn.c_attn.weight") {
      reinterpret_cast<float*>(view.data)[5] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  rows.store();
  const auto text = testing::repeating_text(options);
  const NonfiniteOrigin origin = world.find_nonfinite(*stream, 0, text);
  CHECK(origin.found);
  CHECK(origin.unit == 2);
  const std::uint64_t before = world.digest();
  CHECK(world.run(*stream, 0, text).nonfinite);
  CHECK(world.digest() == before);
}

}  // namespace
}  // namespace train::engine
