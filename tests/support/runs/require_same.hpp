#pragma once

#include <catch2/catch.hpp>

#include "tests/support/runs/actor_fixture.hpp"

namespace train::test {

/// Requires steps, evaluations, weights and checkpoints bitwise equal to the plain loop's.
inline void require_same(const TrainingRun& run, const PlainRun& plain) {
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const actors::StepFinished& step = run.steps[i];
    REQUIRE(step.step == static_cast<std::int64_t>(i) + 1);
    REQUIRE(step.loss.bits == actors::FloatBits(plain.steps.at(i).loss).bits);
    REQUIRE(step.grad_norm.bits == actors::FloatBits(plain.steps.at(i).grad_norm).bits);
    REQUIRE(step.lr.bits == actors::FloatBits(plain.steps.at(i).lr).bits);
    REQUIRE_FALSE(step.nonfinite);
    REQUIRE((!step.has_digest || step.weights_digest == plain.digests.at(i + 1)));
  }
  for (const actors::EvaluationFinished& evaluation : run.evaluations) {
    const engine::EvaluationResult& expected = plain.evaluations.at(evaluation.step);
    REQUIRE(evaluation.cross_entropy.bits == actors::FloatBits(expected.cross_entropy).bits);
    REQUIRE(evaluation.accuracy.bits == actors::FloatBits(expected.accuracy).bits);
  }
  for (const auto& [step, digest] : run.checkpoints.written) {
    REQUIRE(digest == plain.digests.at(static_cast<std::size_t>(step)));
  }
}

}  // namespace train::test
