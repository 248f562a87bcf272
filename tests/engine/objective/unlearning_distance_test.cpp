// Sequential unlearning that rewards how far weights have moved (forget_loss "max_update"): against
// torch with the other losses (sequential_unlearning_test.cpp).

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "engine/objective/registry.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "tests/engine/objective/unlearning_world.hpp"

namespace train::engine::unlearning_distance_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kCoefficient = 0.5;

/// Every step but a phase's first has both gradients.
WorldStep::Options options_of(std::int64_t ranks, const std::string& strategy) {
  auto options = testing::two_phases(ranks, strategy);
  options.objective.forget_loss = "max_update";
  options.objective.forget_coefficient = kCoefficient;
  // Lanes without rows weigh nothing.
  const auto rows =
      static_cast<double>(options.batch.lanes * options.batch.micro_batch * options.seq_len);
  options.step_weight = [rows](std::int64_t, std::size_t pass) { return pass == 0 ? rows : 0.0; };
  return options;
}

WorldStep::FillLane rows_of(const WorldStep::Options& options, float weight) {
  return testing::stream_rows(options, /*later=*/0, weight);
}

/// What the second pass's lanes hold is nothing to it.
StepResult run_step(WorldStep& world, const WorldStep::Options& options, std::int64_t step) {
  const auto stream = kernels::make_inline_stream(1);
  return world.run_passes(*stream, step, {rows_of(options, 1.0F), rows_of(options, kNan)});
}

double metric(const WorldStep& world, const StepResult& result, const std::string& name) {
  const auto names = world.rank(0).rank_plan().objective().metric_names();
  const auto found = std::find(names.begin(), names.end(), name);
  REQUIRE(found != names.end());
  return result.metrics.at(static_cast<std::size_t>(found - names.begin()));
}

using Weights = std::map<std::string, std::vector<float>>;

/// Of rank 0, which holds all.
Weights weights_of(const WorldStep& world) {
  Weights weights;
  for (const StateView& view : world.rank(0).state().views()) {
    if (is_weight(view.name)) {
      const auto values = testing::state_of(world.rank(0), view.name);
      weights[view.name] = {values.begin(), values.end()};
    }
  }
  return weights;
}

struct Moved {
  double distance = 0.0;
  int tensors = 0;
};

/// Of the tensors of a layer.
Moved moved(const Weights& first, const Weights& now, const std::string& layer) {
  Moved sum;
  for (const auto& [name, values] : now) {
    double squares = 0.0;
    for (std::size_t i = 0; name.find(layer) != std::string::npos && i < values.size(); ++i) {
      const double away = static_cast<double>(values[i]) - static_cast<double>(first.at(name)[i]);
      squares += away * away;
    }
    sum.distance += std::sqrt(squares);
    sum.tensors += squares > 0.0 ? 1 : 0;
  }
  return sum;
}

}  // namespace

TEST_CASE("unlearning distance: the loss is the sum over tensors, each gradient of one length",
          "[engine][unlearning_distance]") {
  const auto options = options_of(1, "none");
  WorldStep world(kernels::cpu_backend(), options);
  const Weights first = weights_of(world);
  for (std::int64_t step = 0; step < options.total_steps; ++step) {
    CAPTURE(step);
    const Moved before = moved(first, weights_of(world), step < 3 ? ".h.1." : ".h.0.");
    const StepResult result = run_step(world, options, step);
    REQUIRE_FALSE(result.nonfinite);
    CHECK((before.tensors > 0) == (step % 3 > 0));
    CHECK(metric(world, result, "forget_loss") == Approx(-before.distance).epsilon(1e-5));
    const double c = metric(world, result, "forget_coefficient");
    CHECK(c == kCoefficient * (1.0 - 0.25 * static_cast<double>(step % 3) / 3.0));
    CHECK(metric(world, result, "forget_grad_norm") ==
          Approx(c * std::sqrt(static_cast<double>(before.tensors))).epsilon(1e-5));
    const double retained =
        metric(world, result, "retain_coefficient") * metric(world, result, "retain_loss");
    CHECK(result.loss == Approx(retained - c * before.distance).epsilon(1e-5));
  }
}

TEST_CASE("unlearning distance: a phase's first step is that of the retain loss alone",
          "[engine][unlearning_distance]") {
  const auto options = options_of(2, "full");
  auto without = options;
  without.objective.forget_coefficient = 0.0;
  WorldStep world(kernels::cpu_backend(), options);
  WorldStep retains(kernels::cpu_backend(), without);
  const StepResult first = run_step(world, options, 0);
  CHECK(metric(world, first, "forget_loss") == 0.0);
  CHECK(metric(world, first, "forget_grad_norm") == 0.0);
  CHECK(first.grad_norm == run_step(retains, without, 0).grad_norm);
  CHECK(world.digest() == retains.digest());
  CHECK(run_step(world, options, 1).grad_norm != run_step(retains, without, 1).grad_norm);
  CHECK(world.digest() != retains.digest());
}

TEST_CASE("unlearning distance: no rank, strategy or gating shows",
          "[engine][unlearning_distance][EN-1]") {
  const auto trace_of = [](WorldStep::Options options) {
    WorldStep world(kernels::cpu_backend(), options);
    CHECK(world.rank(0).allocated() == plan_memory(options));
    std::vector<double> values;
    std::vector<std::uint64_t> digests;
    for (std::int64_t step = 0; step < options.total_steps; ++step) {
      const StepResult result = run_step(world, options, step);
      REQUIRE_FALSE(result.nonfinite);
      values.push_back(result.grad_norm);
      values.insert(values.end(), result.metrics.begin(), result.metrics.end());
      digests.push_back(world.digest());
    }
    CHECK(digests.front() != digests.back());
    return std::pair(values, digests);
  };
  const std::string join = GENERATE("sum", "same_sign", "same_sign_forget");
  const auto with = [&](std::int64_t ranks, const char* strategy, const char* sync) {
    auto options = options_of(ranks, strategy);
    options.objective.gradient_join = join;
    options.objective.maintain_unlearned = join == "sum";
    options.objective.retain_loss = join == "sum" ? "nll" : join == "same_sign" ? "kl" : "l2";
    options.parallel.sync = sync;
    return options;
  };
  const auto alone = trace_of(with(1, "none", "auto"));
  for (const std::int64_t ranks : {1, 2, 3}) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full"}) {
      for (const char* sync : {"every_lane", "last_lane"}) {
        CAPTURE(join, ranks, strategy, sync);
        CHECK(trace_of(with(ranks, strategy, sync)) == alone);
      }
    }
  }
}

TEST_CASE("unlearning distance: a search for NaN finds none in a pass without rows",
          "[engine][unlearning_distance]") {
  const auto options = options_of(2, "full");
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto broken = rows_of(options, kNan);
  CHECK(world.run_passes(*stream, 0, {broken, broken}).nonfinite);
  CHECK(world.find_nonfinite(*stream, 0, broken, 0).found);
  CHECK_FALSE(world.find_nonfinite(*stream, 0, broken, 1).found);
}

}  // namespace train::engine::unlearning_distance_test
