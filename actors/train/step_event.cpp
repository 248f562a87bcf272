#include "actors/train/step_event.hpp"

#include "engine/rank/exact_sum.hpp"
#include "engine/rank/weights_digest.hpp"

namespace train::actors {

StepFinished step_event(const engine::RankEngine& engine, std::int64_t step, bool with_digest) {
  const engine::StepResult result = engine.step_result(step);
  StepFinished event{.step = step + 1,
                     .rank = static_cast<std::int32_t>(engine.options().rank),
                     .loss = FloatBits(result.loss),
                     .grad_norm = FloatBits(result.grad_norm),
                     .lr = FloatBits(result.lr),
                     .nonfinite = result.nonfinite,
                     .has_digest = with_digest,
                     .unit_grad_norms = {},
                     .optimizer_sums = engine::words_of(result.optimizer_sums)};
  for (const double norm : result.unit_grad_norms) {
    event.unit_grad_norms.push_back(FloatBits(norm).bits);
  }
  if (with_digest) {
    const auto names = engine::tensor_names(engine.state().views());
    event.tensor_digests = engine.state().tensor_digests(names);
    event.weights_digest = engine::weights_digest(event.tensor_digests, names);
  }
  return event;
}

checkpoint::StepRecord step_record(const StepFinished& event) {
  return {.step = event.step,
          .loss = event.loss.value(),
          .grad_norm = event.grad_norm.value(),
          .lr = event.lr.value(),
          .unit_grad_norms = event.unit_grad_norms,
          .tensor_digests = event.tensor_digests};
}

}  // namespace train::actors
