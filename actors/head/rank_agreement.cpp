#include "actors/head/rank_agreement.hpp"

#include <fmt/format.h>

#include "engine/optimizer/exact_sum.hpp"

namespace train::actors {
namespace {

Error disagreement(const char* what, std::int64_t step, std::int32_t rank_a, FloatBits a,
                   std::int32_t rank_b, FloatBits b) {
  return failure(fmt::format(
      "step {}: {} of rank {} is {} ({:016x}), of rank {} {} ({:016x}); they must be the same "
      "bits: suspect the memory or processor of one of them",
      step, what, rank_a, a.value(), a.bits, rank_b, b.value(), b.bits));
}

/// Exact, so that it does not show which rank is heard first.
std::vector<std::uint64_t> added(const std::vector<std::uint64_t>& a,
                                 const std::vector<std::uint64_t>& b) {
  std::vector<engine::ExactSum> sums = engine::sums_of(a);
  engine::add_each(sums, engine::sums_of(b));
  return engine::words_of(sums);
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
    if (first.optimizer_sums.size() != event.optimizer_sums.size()) {
      return failure(fmt::format(
          "step {}: ranks {} and {} have {} and {} words of the optimizer's sums; they do not run "
          "the same program",
          event.step, first.rank, event.rank, first.optimizer_sums.size(),
          event.optimizer_sums.size()));
    }
    if (first.tensor_digests.size() != event.tensor_digests.size()) {
      return failure(fmt::format(
          "step {}: ranks {} and {} have digests of {} and {} tensors; they do not run the same "
          "program",
          event.step, first.rank, event.rank, first.tensor_digests.size(),
          event.tensor_digests.size()));
    }
    heard.first.weights_digest += event.weights_digest;
    for (std::size_t i = 0; i < event.tensor_digests.size(); ++i) {
      heard.first.tensor_digests[i] += event.tensor_digests[i];
    }
    heard.first.optimizer_sums = added(first.optimizer_sums, event.optimizer_sums);
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
