// The running average of the weights (train.ema).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/optimizer/averaged.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/state/state_rows.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::averaged_test {
namespace {

using Options = WorldStep::Options;

Options options_of(std::int64_t ranks, const std::string& strategy,
                   const std::string& optimizer = "adamw") {
  auto options = testing::small_options(Architecture::enoki);
  options.batch.lanes = 4;
  options.eval_lanes = 2;
  options.optimizer.name = optimizer;
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.train.ema = 0.9;
  options.train.freeze = {"embedding"};
  return options;
}

std::vector<float> values(const WorldStep& world, const std::string& name) {
  const auto found = testing::state_of(world.rank(0), name);
  return {found.begin(), found.end()};
}

/// Digests of all tensors, averages included, after three steps, and what they evaluate to.
std::vector<std::uint64_t> trace(const Options& options) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  for (std::int64_t step = 0; step < 3; ++step) {
    (void)world.run(*stream, step, text);
  }
  const std::vector<std::string> names = tensor_names(world.rank(0).state().views());
  std::vector<std::uint64_t> sums(names.size());
  for (std::int64_t rank = 0; rank < options.parallel.ranks; ++rank) {
    const auto part = world.rank(rank).state().tensor_digests(names);
    std::transform(part.begin(), part.end(), sums.begin(), sums.begin(), std::plus<>());
  }
  if (options.parallel.strategy == "none" || options.parallel.strategy == "full") {
    const double before = world.evaluate(*stream, text).cross_entropy;
    for (std::int64_t rank = 0; rank < options.parallel.ranks; ++rank) {
      world.rank(rank).state().take_average();
    }
    const double average = world.evaluate(*stream, text).cross_entropy;
    CHECK(average != before);
    sums.push_back(static_cast<std::uint64_t>(average * 1e15));
  }
  return sums;
}

}  // namespace

TEST_CASE("average: beta is constant, or grows up to it", "[engine][averaged]") {
  CHECK(average_beta({.freeze = {}, .ema = 0.999}, 1) == 0.999);
  CHECK(average_beta({.freeze = {}, .ema = 0.999, .ema_warmup = true}, 1) == 2.0 / 11.0);
  CHECK(average_beta({.freeze = {}, .ema = 0.5, .ema_warmup = true}, 100) == 0.5);
}

TEST_CASE("average: after each update it is beta itself + (1 - beta) weights",
          "[engine][averaged]") {
  Options options = options_of(1, "none");
  options.train.ema_warmup = GENERATE(false, true);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  const std::string parameter = "transformer.h.1.attn.c_attn.weight";
  const std::vector<float> initial = values(world, "model." + parameter);
  std::vector<double> expected(initial.begin(), initial.end());
  for (std::int64_t step = 1; step <= 4; ++step) {
    (void)world.run(*stream, step - 1, text);
    const double beta = average_beta(options.train, step);
    const auto weights = values(world, "model." + parameter);
    const auto average = values(world, "optimizer.ema." + parameter);
    REQUIRE(average.size() == weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      expected[i] = beta * expected[i] + (1.0 - beta) * static_cast<double>(weights[i]);
      REQUIRE(std::abs(static_cast<double>(average[i]) - expected[i]) <= 1e-6);
    }
  }
  for (const StateView& view : world.rank(0).state().views()) {
    CHECK(view.name != "optimizer.ema.transformer.wte.weight");
  }
}

TEST_CASE("average: the same bits at any ranks and strategy, and none of the weights' change",
          "[engine][averaged][P1]") {
  const auto* const optimizer = GENERATE("adamw", "muon");
  const auto alone = trace(options_of(1, "none", optimizer));
  for (const std::int64_t ranks : {2, 3}) {
    for (const char* strategy : {"none", "optimizer", "full"}) {
      CAPTURE(ranks, strategy);
      auto found = trace(options_of(ranks, strategy, optimizer));
      const auto same = static_cast<std::ptrdiff_t>(found.size());
      CHECK(std::equal(found.begin(), found.end(), alone.begin(), alone.begin() + same));
    }
  }
  Options options = options_of(1, "none", optimizer);
  const auto stream = kernels::make_inline_stream(1);
  const auto text = testing::repeating_text(options);
  WorldStep with(kernels::cpu_backend(), options);
  options.train.ema = 0.0;
  WorldStep without(kernels::cpu_backend(), options);
  (void)with.run(*stream, 0, text);
  (void)without.run(*stream, 0, text);
  CHECK(with.digest() == without.digest());
}

TEST_CASE("average: its memory is planned with the optimizer's", "[engine][averaged]") {
  for (const char* strategy : {"none", "full"}) {
    const Options options = options_of(2, strategy);
    const RankEngine engine(kernels::cpu_backend(), options);
    CHECK(engine.allocated() == plan_memory(options));
    Options without = options;
    without.train.ema = 0.0;
    CHECK(2 * plan_memory(options).optimizer_bytes == 3 * plan_memory(without).optimizer_bytes);
  }
}

}  // namespace train::engine::averaged_test
