#pragma once

#include <algorithm>
#include <caf/all.hpp>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "actors/messages/event_messages.hpp"

namespace train::test {

/// Events that reached the conductor; steps and evaluations are merged over all ranks.
class RunEvents {
 public:
  std::vector<actors::StepFinished> steps;
  std::vector<actors::EvaluationFinished> evaluations;
  std::map<std::int64_t, std::vector<std::uint64_t>> answers;  ///< By step; of all ranks.
  std::vector<actors::TextsSampled> texts;
  std::vector<std::int64_t> saved, skipped, save_failed;
  std::vector<actors::RankFailed> failures;
  std::vector<actors::NonfiniteFound> nonfinite;

 protected:
  void expect_ranks(std::size_t ranks) { heard_.resize(ranks); }
  void keep(const caf::type_erased_tuple& message) {
    if (message.match_elements<actors::StepFinished>()) {
      keep_step(message.get_as<actors::StepFinished>(0));
    } else if (message.match_elements<actors::EvaluationFinished>()) {
      keep_evaluation(message.get_as<actors::EvaluationFinished>(0));
    } else if (message.match_elements<actors::CheckpointWritten>()) {
      saved.push_back(message.get_as<actors::CheckpointWritten>(0).step);
    } else if (message.match_elements<actors::CheckpointFailed>()) {
      save_failed.push_back(message.get_as<actors::CheckpointFailed>(0).step);
    } else if (message.match_elements<actors::RankFailed>()) {
      failures.push_back(message.get_as<actors::RankFailed>(0));
    } else if (message.match_elements<actors::NonfiniteFound>()) {
      nonfinite.push_back(message.get_as<actors::NonfiniteFound>(0));
    }
  }

 private:
  // Every rank reports its steps in order; the slowest one completes a step.
  void keep_step(const actors::StepFinished& event) {
    auto& own = heard_.at(static_cast<std::size_t>(event.rank)).steps;
    REQUIRE(event.step == static_cast<std::int64_t>(own.size()) + 1);
    own.push_back(event);
    actors::StepFinished all = event;
    all.weights_digest = 0;
    all.tensor_digests.assign(event.tensor_digests.size(), 0);
    for (const Heard& rank : heard_) {
      if (rank.steps.size() < own.size()) {
        return;
      }
      const actors::StepFinished& other = rank.steps[own.size() - 1];
      REQUIRE(other.loss.bits == all.loss.bits);
      REQUIRE(other.grad_norm.bits == all.grad_norm.bits);
      REQUIRE(other.unit_grad_norms == all.unit_grad_norms);
      REQUIRE(other.nonfinite == all.nonfinite);
      REQUIRE(other.has_digest == all.has_digest);
      all.weights_digest += other.weights_digest;
      REQUIRE(other.tensor_digests.size() == all.tensor_digests.size());
      for (std::size_t i = 0; i < all.tensor_digests.size(); ++i) {
        all.tensor_digests[i] += other.tensor_digests[i];
      }
    }
    steps.push_back(all);
  }
  void keep_answers(const actors::EvaluationFinished& event) {
    std::vector<std::uint64_t>& all = answers[event.step];
    const auto first = static_cast<std::size_t>(event.first_document);
    all.resize(std::max(all.size(), first + event.log_likelihoods.size()));
    std::copy(event.log_likelihoods.begin(), event.log_likelihoods.end(),
              all.begin() + static_cast<std::ptrdiff_t>(first));
  }
  void keep_evaluation(const actors::EvaluationFinished& event) {
    if (event.of_choices) {
      return keep_answers(event);
    }
    auto& own = heard_.at(static_cast<std::size_t>(event.rank)).evaluations;
    own.push_back(event);
    for (const Heard& rank : heard_) {
      if (rank.evaluations.size() < own.size()) {
        return;
      }
      const actors::EvaluationFinished& other = rank.evaluations[own.size() - 1];
      REQUIRE(other.step == event.step);
      REQUIRE(other.cross_entropy.bits == event.cross_entropy.bits);
      REQUIRE(other.accuracy.bits == event.accuracy.bits);
    }
    evaluations.push_back(event);
  }

  struct Heard {
    std::vector<actors::StepFinished> steps;
    std::vector<actors::EvaluationFinished> evaluations;
  };

  std::vector<Heard> heard_;  // By rank.
};

}  // namespace train::test
