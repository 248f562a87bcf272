#include "actors/rank_agreement.hpp"

#include <fmt/format.h>

namespace train::actors {
namespace {

Error disagreement(const char* what, std::int64_t step, std::int32_t rank_a, FloatBits a,
                   std::int32_t rank_b, FloatBits b) {
  return failure(fmt::format(
      "step {}: {} of rank {} is {} ({:016x}), of rank {} {} ({:016x}); they must be the same "
      "bits: suspect the memory or processor of one of them",
      step, what, rank_a, a.value(), a.bits, rank_b, b.value(), b.bits));
}

}  // namespace

Result<std::optional<StepFinished>> RankAgreement::hear(const StepFinished& event,
                                                        std::size_t ranks) {
  auto& heard = steps_[event.step];
  if (heard.count == 0) {
    heard.first = event;
  } else {
    const StepFinished& first = heard.first;
    if (first.loss.bits != event.loss.bits) {
      return disagreement("the loss", event.step, first.rank, first.loss, event.rank, event.loss);
    }
    if (first.grad_norm.bits != event.grad_norm.bits) {
      return disagreement("the gradient norm", event.step, first.rank, first.grad_norm, event.rank,
                          event.grad_norm);
    }
    heard.first.weights_digest += event.weights_digest;
  }
  if (++heard.count < ranks) {
    return std::optional<StepFinished>();
  }
  std::optional<StepFinished> all = heard.first;
  steps_.erase(event.step);
  return all;
}

Result<bool> RankAgreement::hear(const EvaluationFinished& event, std::size_t ranks) {
  auto& heard = evaluations_[event.step];
  if (heard.count == 0) {
    heard.first = event;
  } else if (heard.first.cross_entropy.bits != event.cross_entropy.bits) {
    return disagreement("the evaluation", event.step, heard.first.rank, heard.first.cross_entropy,
                        event.rank, event.cross_entropy);
  }
  if (++heard.count < ranks) {
    return false;
  }
  evaluations_.erase(event.step);
  return true;
}

}  // namespace train::actors
