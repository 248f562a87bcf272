#include "engine/train_step.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/engine/small_model.hpp"

namespace train::engine {
namespace {

std::vector<std::vector<float>> copy_weights(const TrainStep& step) {
  std::vector<std::vector<float>> copies;
  for (std::size_t u = 0; u < step.rank().unit_count(); ++u) {
    const UnitState& state = step.rank().state(u);
    copies.emplace_back(state.weights(), state.weights() + state.unit().element_count);
  }
  return copies;
}

std::vector<std::uint64_t> digests_of_steps(const TrainStep::Options& options, int threads,
                                            int steps) {
  const auto stream = kernels::make_thread_stream("device", threads);
  TrainStep step(kernels::cpu_backend(), options);
  std::vector<std::uint64_t> digests = {step.rank().digest()};
  for (int s = 0; s < steps; ++s) {
    CHECK_FALSE(step.run(*stream, s, testing::repeating_text(options)).poisoned);
    digests.push_back(step.rank().digest());
  }
  return digests;
}

}  // namespace

TEST_CASE("train step: the loss falls on text that repeats", "[engine][train_step]") {
  const auto options = testing::small_options(GENERATE(Architecture::enoki, Architecture::qwen3));
  const auto stream = kernels::make_inline_stream(1);
  TrainStep step(kernels::cpu_backend(), options);
  const double first = step.run(*stream, 0, testing::repeating_text(options)).loss;
  CHECK(first == Approx(std::log(41.0)).margin(1.0));
  double last = first;
  for (std::int64_t s = 1; s < 40; ++s) {
    last = step.run(*stream, s, testing::repeating_text(options)).loss;
  }
  CHECK(last < 0.1 * first);
}

TEST_CASE("train step: weights do not depend on the number of threads",
          "[engine][train_step][EN-1]") {
  auto options = testing::small_options(GENERATE(Architecture::enoki, Architecture::qwen3));
  options.shape.head_dim = 32;
  options.shape.embedding_dim = 64;
  options.shape.mlp_hidden = 200;
  options.seq_len = 96;
  const auto one = digests_of_steps(options, 1, 3);
  CHECK(digests_of_steps(options, 2, 3) == one);
  CHECK(digests_of_steps(options, 3, 3) == one);
  CHECK(std::adjacent_find(one.begin(), one.end()) == one.end());
}

TEST_CASE("train step: evaluation measures and changes nothing", "[engine][train_step]") {
  auto options = testing::small_options(Architecture::qwen3);
  options.eval_lanes = 5;  // More than there are slots.
  const auto stream = kernels::make_thread_stream("device", 1);
  TrainStep step(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  const std::uint64_t start = step.rank().digest();
  const EvaluationResult before = step.evaluate(*stream, text);
  CHECK(step.rank().digest() == start);
  CHECK(before.targets == 5.0 * 2.0 * 24.0);
  CHECK(before.cross_entropy == Approx(std::log(41.0)).margin(1.0));
  for (std::int64_t s = 0; s < 40; ++s) {
    step.run(*stream, s, text);
  }
  const EvaluationResult after = step.evaluate(*stream, text);
  CHECK(after.cross_entropy < 0.1 * before.cross_entropy);
  CHECK(after.accuracy > 0.95);
}

TEST_CASE("train step: a probe finds where values stop being finite", "[engine][train_step]") {
  auto options = testing::small_options(Architecture::enoki);
  const auto stream = kernels::make_inline_stream(1);
  TrainStep step(kernels::cpu_backend(), options);
  RankEngine& rank = step.rank();
  const auto probe = [&] {
    for (std::int64_t lane = 0; lane < options.batch.lanes; ++lane) {
      const LaneWork work{.purpose = LanePurpose::probe, .step = 0, .lane = lane, .slot = 0};
      testing::repeating_text(options)(0, lane, rank.slot_tokens(0), rank.slot_targets(0));
      for (std::size_t u = 0; u < rank.unit_count(); ++u) {
        rank.forward(*stream, u, work);
      }
      for (std::size_t u = rank.unit_count(); u-- > 0;) {
        rank.backward(*stream, u, work);
      }
    }
    stream->synchronize();
    return rank.nonfinite_origin();
  };
  CHECK_FALSE(probe().found);
  rank.state(2).weights()[5] = std::numeric_limits<float>::quiet_NaN();
  const NonfiniteOrigin origin = probe();
  CHECK(origin.found);
  CHECK(origin.lane == 0);
  CHECK(origin.unit == 2);
  CHECK_FALSE(origin.backward);
}

TEST_CASE("train step: the gradient is the slope of the loss", "[engine][train_step]") {
  auto options = testing::small_options(GENERATE(Architecture::enoki, Architecture::qwen3));
  options.optimizer.lr = 0.0;  // run() then only measures.
  options.shape.z_loss_coeff = 0.05F;
  const auto stream = kernels::make_inline_stream(1);
  TrainStep step(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  const double norm = step.run(*stream, 0, text).grad_norm;
  const auto start = copy_weights(step);
  std::vector<std::vector<float>> gradient;
  for (std::size_t u = 0; u < start.size(); ++u) {
    gradient.emplace_back(step.rank().gradient(u), step.rank().gradient(u) + start[u].size());
  }
  // Along the gradient itself, 0.01 to either side.
  const auto loss_at = [&](double distance) {
    for (std::size_t u = 0; u < start.size(); ++u) {
      for (std::size_t i = 0; i < start[u].size(); ++i) {
        step.rank().state(u).weights()[i] =
            start[u][i] + static_cast<float>(distance / norm) * gradient[u][i];
      }
    }
    return step.run(*stream, 0, text).loss;
  };
  const double slope = (loss_at(0.01) - loss_at(-0.01)) / 0.02;
  CHECK(slope == Approx(norm).epsilon(2e-3));
}

TEST_CASE("train step: a poisoned step changes no weight", "[engine][train_step]") {
  const auto options = testing::small_options(Architecture::enoki);
  const auto stream = kernels::make_inline_stream(1);
  TrainStep step(kernels::cpu_backend(), options);
  CHECK_FALSE(step.run(*stream, 0, testing::repeating_text(options)).poisoned);
  step.rank().state(1).weights()[20] = std::numeric_limits<float>::infinity();
  const std::uint64_t before = step.rank().digest();
  const float moment = step.rank().state(2).exp_avg()[40];
  const StepResult result = step.run(*stream, 1, testing::repeating_text(options));
  CHECK(result.poisoned);
  CHECK(step.rank().digest() == before);
  CHECK(step.rank().state(2).exp_avg()[40] == moment);
}

TEST_CASE("train step: clipping bounds what the optimizer sees, not what is reported",
          "[engine][train_step]") {
  auto options = testing::small_options(Architecture::enoki);
  const auto stream = kernels::make_inline_stream(1);
  options.optimizer.grad_clip = 0.0;
  TrainStep free_step(kernels::cpu_backend(), options);
  options.optimizer.grad_clip = 1e-3;
  TrainStep clipped(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  const double norm = free_step.run(*stream, 0, text).grad_norm;
  CHECK(clipped.run(*stream, 0, text).grad_norm == norm);
  REQUIRE(norm > 1e-2);
  const float unclipped_moment = free_step.rank().state(1).exp_avg()[100];
  const float clipped_moment = clipped.rank().state(1).exp_avg()[100];
  REQUIRE(unclipped_moment != 0.0F);
  CHECK(clipped_moment / unclipped_moment == Approx(1e-3 / (norm + 1e-6)).epsilon(1e-4));
}

TEST_CASE("train step: the reported norm is that of all gradients", "[engine][gradient_norm]") {
  const auto options = testing::small_options(Architecture::qwen3);
  const auto stream = kernels::make_inline_stream(1);
  TrainStep step(kernels::cpu_backend(), options);
  const StepResult result = step.run(*stream, 0, testing::repeating_text(options));
  double squares = 0.0;
  for (std::size_t u = 0; u < step.rank().unit_count(); ++u) {
    for (const Parameter& parameter : step.rank().state(u).unit().parameters) {
      for (std::int64_t i = 0; i < parameter.count(); ++i) {
        squares += std::pow(static_cast<double>(step.rank().gradient(u)[parameter.offset + i]), 2);
      }
    }
  }
  CHECK(result.grad_norm == Approx(std::sqrt(squares)).epsilon(1e-6));
}

}  // namespace train::engine
