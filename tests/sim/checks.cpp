#include "tests/sim/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/messages/event_messages.hpp"

namespace train::sim {

void Checks::begin(std::int64_t first_step, std::int64_t ranks) {
  ranks_ = ranks;
  digests_.clear();
  if (first_step < promised_) {
    throw Violation(
        fmt::format("lost commit: the checkpoint of step {} was reported as published, and a start "
                    "goes on from step {} (P3)",
                    promised_, first_step));
  }
}

void Checks::begin_job(std::int64_t first_step, std::int64_t steps_per_job) {
  job_end_ = steps_per_job > 0 ? std::optional(first_step + steps_per_job) : std::nullopt;
}

void Checks::hear(const caf::type_erased_tuple& message) {
  if (message.match_elements<actors::StepFinished>()) {
    hear_step(message.get_as<actors::StepFinished>(0));
  } else if (message.match_elements<actors::EvaluationFinished>()) {
    hear_evaluation(message.get_as<actors::EvaluationFinished>(0));
  } else if (message.match_elements<actors::CheckpointWritten>()) {
    ++published_;
    promise(message.get_as<actors::CheckpointWritten>(0).step);
  }
}

void Checks::hear_step(const actors::StepFinished& event) {
  const auto index = static_cast<std::size_t>(event.step);
  if (event.step < 1 || index > reference_.steps.size()) {
    throw Violation(fmt::format("step {} of {} was trained", event.step, reference_.steps.size()));
  }
  if (job_end_ && event.step > *job_end_) {
    throw Violation(
        fmt::format("step {} was trained in a start that ends at step {} "
                    "(run.steps_per_job)",
                    event.step, *job_end_));
  }
  const engine::StepResult& expected = reference_.steps[index - 1];
  if (event.loss.bits != actors::FloatBits(expected.loss).bits ||
      event.grad_norm.bits != actors::FloatBits(expected.grad_norm).bits) {
    throw Violation(
        fmt::format("other bits: rank {} has loss {} and norm {} at step {}, the "
                    "reference {} and {} (P1)",
                    event.rank, event.loss.value(), event.grad_norm.value(), event.step,
                    expected.loss, expected.grad_norm));
  }
  auto& [reports, sum] = digests_[event.step];
  sum += event.weights_digest;
  if (++reports == ranks_ && sum != reference_.digests[index]) {
    throw Violation(
        fmt::format("other bits: the weights after step {} have digest {:016x}, the "
                    "reference's {:016x} (P1)",
                    event.step, sum, reference_.digests[index]));
  }
}

void Checks::hear_evaluation(const actors::EvaluationFinished& event) const {
  const auto expected = reference_.evaluations.find(event.step);
  if (expected == reference_.evaluations.end() ||
      event.cross_entropy.bits != actors::FloatBits(expected->second.cross_entropy).bits) {
    throw Violation(fmt::format("other bits: rank {} evaluates step {} to {} (P1)", event.rank,
                                event.step, event.cross_entropy.value()));
  }
}

void Checks::promise(std::int64_t step) { promised_ = std::max(promised_, step); }

void Checks::look_into(const std::filesystem::path& checkpoints) const {
  std::error_code none;  // there is no such directory before the first start has made it
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("damaged-")) {
      throw Violation(
          fmt::format("half a checkpoint: {} had its name and was not whole (P3)", name));
    }
  }
}

}  // namespace train::sim
