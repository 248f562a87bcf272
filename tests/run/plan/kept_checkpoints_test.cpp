#include "run/plan/kept_checkpoints.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

namespace train::run::kept_checkpoints_test {
namespace {

/// Largest number in place at one time, if every save is evaluated with a random loss.
std::int64_t most_of(const configs::RunConfig& config, std::mt19937& random) {
  const std::int64_t steps = config.run.steps;
  const std::int64_t interval = config.checkpoint.interval_steps;
  std::vector<checkpoint::IndexEntry> placed;
  std::int64_t most = 0;
  for (std::int64_t step = 1; step <= steps; ++step) {
    if (step != steps && (interval == 0 || step % interval != 0)) {
      continue;
    }
    placed.emplace_back().step = step;
    placed.back().validation_loss = static_cast<double>(random() % 9);
    most = std::max(most, std::ssize(placed));
    const auto gone = checkpoint::to_retire(placed, retention_rule(config));
    std::erase_if(placed, [&](const checkpoint::IndexEntry& entry) {
      return std::binary_search(gone.begin(), gone.end(), entry.step);
    });
  }
  return most;
}

}  // namespace

TEST_CASE("kept checkpoints: a run that never evaluates keeps none as the best", "[run][plan]") {
  configs::RunConfig config;
  config.checkpoint.keep_best = 2;
  CHECK(retention_rule(config).keep_best == 2);
  config.eval.interval_steps = 0;
  CHECK(retention_rule(config).keep_best == 0);
}

TEST_CASE("kept checkpoints: there are never more than the plan says", "[run][plan]") {
  std::mt19937 random(5);
  int reached = 0;
  for (int i = 0; i < 500; ++i) {
    configs::RunConfig config;
    config.run.steps = 1 + static_cast<std::int64_t>(random() % 60);
    config.checkpoint.interval_steps = static_cast<std::int64_t>(random() % 8);
    config.checkpoint.keep_last = static_cast<std::int64_t>(random() % 4);
    config.checkpoint.keep_every = static_cast<std::int64_t>(random() % 3 * 6);
    config.checkpoint.keep_best = static_cast<std::int64_t>(random() % 3);
    CAPTURE(config.run.steps, config.checkpoint.interval_steps, config.checkpoint.keep_last,
            config.checkpoint.keep_every, config.checkpoint.keep_best);
    const std::int64_t most = most_of(config, random);
    CHECK(most <= most_checkpoints(config));
    reached += most == most_checkpoints(config) ? 1 : 0;
  }
  CHECK(reached > 100);
}

}  // namespace train::run::kept_checkpoints_test
