#include "tests/support/runs/world_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/rank/small_model.hpp"
#include "tests/support/inputs/reshape.hpp"

namespace train::engine::world_step_test {
namespace {

std::vector<std::vector<float>> copies(const std::vector<std::span<float>>& values) {
  std::vector<std::vector<float>> copied;
  for (const std::span<float> each : values) {
    copied.emplace_back(each.begin(), each.end());
  }
  return copied;
}

std::vector<std::uint64_t> digests_of_steps(const WorldStep::Options& options, int threads,
                                            int steps) {
  const auto stream = kernels::make_thread_stream("device", threads);
  WorldStep step(kernels::cpu_backend(), options);
  std::vector<std::uint64_t> digests = {step.digest()};
  for (int s = 0; s < steps; ++s) {
    CHECK_FALSE(step.run(*stream, s, testing::repeating_text(options)).nonfinite);
    digests.push_back(step.digest());
  }
  return digests;
}

}  // namespace

TEST_CASE("world step: the loss falls on text that repeats", "[engine][world_step]") {
  const auto options =
      testing::small_options(GENERATE(Architecture::enoki, Architecture::dstar_qwen3));
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), options);
  const double first = step.run(*stream, 0, testing::repeating_text(options)).loss;
  CHECK(first == Approx(std::log(41.0)).margin(1.0));
  double last = first;
  for (std::int64_t s = 1; s < 40; ++s) {
    last = step.run(*stream, s, testing::repeating_text(options)).loss;
  }
  CHECK(last < 0.1 * first);
}

TEST_CASE("world step: weights do not depend on the number of threads",
          "[engine][world_step][EN-1]") {
  auto options = testing::small_options(GENERATE(Architecture::enoki, Architecture::dstar_qwen3));
  testing::reshape(options, [](ModelShape& shape) {
    shape.head_dim = 32;
    shape.embedding_dim = 64;
    shape.mlp_hidden = 200;
  });
  options.seq_len = 96;
  const auto one = digests_of_steps(options, 1, 3);
  CHECK(digests_of_steps(options, 2, 3) == one);
  CHECK(digests_of_steps(options, 3, 3) == one);
  CHECK(std::adjacent_find(one.begin(), one.end()) == one.end());
}

TEST_CASE("world step: evaluation measures and changes nothing", "[engine][world_step]") {
  auto options = testing::small_options(Architecture::dstar_qwen3);
  options.eval_lanes = 5;  // More than there are slots.
  const auto stream = kernels::make_thread_stream("device", 1);
  WorldStep step(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  const std::uint64_t start = step.digest();
  const EvaluationResult before = step.evaluate(*stream, text);
  CHECK(step.digest() == start);
  CHECK(before.targets == 5.0 * 2.0 * 24.0);
  CHECK(before.cross_entropy == Approx(std::log(41.0)).margin(1.0));
  for (std::int64_t s = 0; s < 40; ++s) {
    step.run(*stream, s, text);
  }
  const EvaluationResult after = step.evaluate(*stream, text);
  CHECK(after.cross_entropy < 0.1 * before.cross_entropy);
  CHECK(after.accuracy > 0.95);
}

TEST_CASE("world step: a probe finds where values stop being finite", "[engine][world_step]") {
  auto options = testing::small_options(Architecture::enoki);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), options);
  const auto probe = [&] {
    return step.find_nonfinite(*stream, 0, testing::repeating_text(options));
  };
  CHECK_FALSE(probe().found);
  testing::state_of(step.rank(0), "model.transformer.h.1.attn.c_attn.weight")[5] =
      std::numeric_limits<float>::quiet_NaN();
  const NonfiniteOrigin origin = probe();
  CHECK(origin.found);
  CHECK(origin.lane == 0);
  CHECK(origin.unit == 2);
  CHECK_FALSE(origin.backward);
}

TEST_CASE("world step: a probe goes back from the last layer", "[engine][world_step]") {
  auto options = testing::small_options(Architecture::dstar_qwen3);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), options);
  // A closed gate hides what is behind it from the forward pass; its own gradient is the product of
  // both, which no float holds.
  const auto fill = [&](const char* name, float value) {
    const auto weights =
        testing::state_of(step.rank(0), fmt::format("model.transformer.h.1.mlp.{}.weight", name));
    std::fill(weights.begin(), weights.end(), value);
  };
  fill("gate_proj", 0.0F);
  fill("up_proj", 1e37F);
  fill("down_proj", 0.0F);
  const auto down = testing::state_of(step.rank(0), "model.transformer.h.1.mlp.down_proj.weight");
  std::fill_n(down.begin(), down.size() / 16, 1e10F);  // of the first outputs alone
  const NonfiniteOrigin origin = step.find_nonfinite(*stream, 0, testing::repeating_text(options));
  CHECK(origin.found);
  CHECK(origin.lane == 0);
  CHECK(origin.unit == 2);
  CHECK(origin.backward);
}

TEST_CASE("world step: the gradient is the slope of the loss", "[engine][world_step]") {
  auto options = testing::small_options(GENERATE(Architecture::enoki, Architecture::dstar_qwen3));
  options.optimizer.lr = 0.0;  // run() then only measures.
  options.model.z_loss_coeff = 0.05F;
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  const double norm = step.run(*stream, 0, text).grad_norm;
  const auto weights = testing::weights_of(step.rank(0));
  const auto start = copies(weights);
  std::vector<std::vector<float>> gradient;
  for (const testing::GradientShard& shard : testing::gradients_of(step.rank(0))) {
    const auto values = testing::values_of(shard);
    gradient.emplace_back(values.begin(), values.end());
  }
  // Along the gradient itself, 0.01 to either side.
  const auto loss_at = [&](double distance) {
    for (std::size_t p = 0; p < start.size(); ++p) {
      for (std::size_t i = 0; i < start[p].size(); ++i) {
        weights[p][i] = start[p][i] + static_cast<float>(distance / norm) * gradient[p][i];
      }
    }
    return step.run(*stream, 0, text).loss;
  };
  const double slope = (loss_at(0.01) - loss_at(-0.01)) / 0.02;
  CHECK(slope == Approx(norm).epsilon(2e-3));
}

TEST_CASE("world step: a non-finite step changes no weight", "[engine][world_step]") {
  const auto options = testing::small_options(Architecture::enoki);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), options);
  CHECK_FALSE(step.run(*stream, 0, testing::repeating_text(options)).nonfinite);
  testing::state_of(step.rank(0), "model.transformer.h.0.mlp.c_proj.weight")[20] =
      std::numeric_limits<float>::infinity();
  const std::uint64_t before = step.digest();
  const auto moments =
      testing::state_of(step.rank(0), "optimizer.exp_avg.transformer.h.1.mlp.c_fc.weight");
  const float moment = moments[40];
  const StepResult result = step.run(*stream, 1, testing::repeating_text(options));
  CHECK(result.nonfinite);
  CHECK(step.digest() == before);
  CHECK(moments[40] == moment);
}

TEST_CASE("world step: clipping bounds what the optimizer sees, not what is reported",
          "[engine][world_step]") {
  auto options = testing::small_options(Architecture::enoki);
  const auto stream = kernels::make_inline_stream(1);
  options.optimizer.grad_clip = 0.0;
  WorldStep free_step(kernels::cpu_backend(), options);
  options.optimizer.grad_clip = 1e-3;
  WorldStep clipped(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  const double norm = free_step.run(*stream, 0, text).grad_norm;
  CHECK(clipped.run(*stream, 0, text).grad_norm == norm);
  REQUIRE(norm > 1e-2);
  const std::string kMoment = "optimizer.exp_avg.transformer.h.1.mlp.c_fc.weight";
  const float unclipped_moment = testing::state_of(free_step.rank(0), kMoment)[40];
  const float clipped_moment = testing::state_of(clipped.rank(0), kMoment)[40];
  REQUIRE(unclipped_moment != 0.0F);
  CHECK(clipped_moment / unclipped_moment == Approx(1e-3 / (norm + 1e-6)).epsilon(1e-4));
}

TEST_CASE("world step: the reported norm is that of all gradients", "[engine][gradient_norm]") {
  const auto options = testing::small_options(Architecture::dstar_qwen3);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), options);
  const StepResult result = step.run(*stream, 0, testing::repeating_text(options));
  double squares = 0.0;
  std::vector<double> of_units(step.rank(0).unit_count());
  for (const testing::GradientShard& shard : testing::gradients_of(step.rank(0))) {
    for (const float value : testing::values_of(shard)) {
      of_units[shard.unit] += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  REQUIRE(result.unit_grad_norms.size() == of_units.size());
  for (std::size_t unit = 0; unit < of_units.size(); ++unit) {
    CHECK(result.unit_grad_norms[unit] == Approx(std::sqrt(of_units[unit])).epsilon(1e-9));
    squares += of_units[unit];
  }
  CHECK(result.grad_norm == Approx(std::sqrt(squares)).epsilon(1e-6));
}

}  // namespace train::engine::world_step_test
