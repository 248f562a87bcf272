#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/engine/parity/published_gradients.hpp"
#include "tests/engine/parity/published_summary.hpp"

// What the fixtures of preferences have in common: lanes of answers, whose tokens follow a formula,
// and runs that are compared with torch's.
namespace train::engine::testing {

struct Answer {
  std::int64_t item = 0;      ///< Its pair or example.
  std::int64_t document = 0;  ///< LaneSlot::sequences.
  std::int32_t side = 0;
  std::int64_t prompt = 0;
  std::int64_t length = 0;  ///< With the prompt.
  float weight = 1.0F;      ///< Of its targets.
};

/// The scripts' formula.
inline std::int32_t token_of(const Answer& answer, std::int64_t at, std::int64_t vocab) {
  const std::int64_t seed = answer.item * 31 + (at < answer.prompt ? 0 : 11 * (1 + answer.side));
  return static_cast<std::int32_t>((seed + at * at * 7 + at * 3 + 5) % vocab);
}

/// One after the other, then padding. Answers are trained; `prompts`: their prompts are targets,
/// too, without weight.
inline void fill_answers(const LaneSlot& slot, const std::vector<Answer>& answers,
                         std::int64_t vocab, bool prompts) {
  std::fill(slot.tokens.begin(), slot.tokens.end(), 0);
  std::fill(slot.targets.begin(), slot.targets.end(), -1);
  std::fill(slot.positions.begin(), slot.positions.end(), 0);
  std::fill(slot.weights.begin(), slot.weights.end(), 0.0F);
  std::size_t row = 0;
  std::size_t next = 0;
  for (const Answer& answer : answers) {
    if (!slot.sequences.empty()) {
      slot.sequences[next++] = {.item = answer.item,
                                .document = answer.document,
                                .first = static_cast<std::int32_t>(row),
                                .rows = static_cast<std::int32_t>(answer.length),
                                .side = answer.side};
    }
    for (std::int64_t at = 0; at < answer.length; ++at, ++row) {
      slot.tokens[row] = token_of(answer, at, vocab);
      slot.positions[row] = static_cast<std::int32_t>(at);
      const bool trained = at + 1 >= answer.prompt;
      if (at + 1 < answer.length && (trained || prompts)) {
        slot.targets[row] = token_of(answer, at + 1, vocab);
        slot.weights[row] = trained ? answer.weight : 0.0F;
      }
    }
  }
  if (!slot.sequences.empty()) {
    slot.sequences[next] = {};
  }
  for (std::int32_t position = 0; row < slot.positions.size(); ++row, ++position) {
    slot.positions[row] = position;
  }
}

/// Runs the steps of `entry` and compares losses, metrics, the first gradients and the last
/// weights.
inline void check_run(WorldStep& world, kernels::Stream& stream, const nlohmann::json& entry,
                      const WorldStep::FillLane& fill) {
  const auto losses = entry.at("losses").get<std::vector<double>>();
  for (std::size_t step = 0; step < losses.size(); ++step) {
    CAPTURE(step);
    const StepResult result = world.run(stream, static_cast<std::int64_t>(step), fill);
    CHECK(std::abs(result.loss - losses[step]) <= kSummaryTolerance * std::abs(losses[0]));
    const auto metrics = entry.at("metrics")[step].get<std::vector<double>>();
    REQUIRE(result.metrics.size() == metrics.size());
    for (std::size_t metric = 0; metric < metrics.size(); ++metric) {
      CAPTURE(metric);
      // Log-probabilities of a dozen tokens, each of them rounded to float32.
      CHECK(std::abs(result.metrics[metric] - metrics[metric]) <=
            kSummaryTolerance * std::max(1.0, std::abs(metrics[4])));
    }
    if (step == 0) {
      check_gradients(world, entry.at("gradients"));
    }
  }
  for (const GradientShard& shard : gradients_of(world.rank(0))) {
    const nlohmann::json& summary = entry.at("weights").at(shard.name);
    check_summary(shard.name, state_of(world.rank(0), "model." + shard.name), summary,
                  kSummaryTolerance * summary.at(0).get<double>());
  }
}

}  // namespace train::engine::testing
