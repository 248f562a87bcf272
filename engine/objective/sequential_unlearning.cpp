#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.hpp"
#include "engine/objective/npo_weighting.hpp"
#include "engine/objective/registry.hpp"
#include "engine/objective/unlearning.hpp"

namespace train::engine {
namespace {

GradientJoin join_of(const std::string& text) {
  return text == "sum"         ? GradientJoin::sum
         : text == "same_sign" ? GradientJoin::symmetric
                               : GradientJoin::asymmetric;
}

/// Sequential unlearning: a first pass over what is retained, a second one over what is forgotten.
class SequentialUnlearning final : public Objective, private TrainingSchedule {
 public:
  explicit SequentialUnlearning(const configs::ObjectiveSection& section);

  [[nodiscard]] RowKind rows() const override { return RowKind::documents; }
  [[nodiscard]] LaneColumns columns() const override {
    return {.positions = true, .weights = true, .sequences = npo_.has_value()};
  }
  [[nodiscard]] std::vector<Pass> passes(std::int64_t step) const override;
  [[nodiscard]] GradientJoin join() const override { return join_of(section_.gradient_join); }
  [[nodiscard]] const TrainingSchedule* schedule() const override { return this; }
  [[nodiscard]] std::vector<std::string> metric_names() const override { return metrics_; }
  [[nodiscard]] std::vector<double> metric_values(std::int64_t step,
                                                  std::span<const PassOutcome> passes,
                                                  const SignAgreement& agreement,
                                                  std::size_t first_unit) const override;

 private:
  [[nodiscard]] Status check(std::int64_t layers, std::int64_t steps) const override;
  [[nodiscard]] bool ever_trains(std::int64_t layer) const override { return phase_of(layer) >= 0; }
  [[nodiscard]] bool trains(std::int64_t layer, std::int64_t step) const override;
  [[nodiscard]] std::int64_t update_number(std::int64_t layer, std::int64_t step) const override;
  [[nodiscard]] bool state_by_phase() const override {
    return section_.frozen_layers == "skip_update" && !section_.maintain_unlearned;
  }
  [[nodiscard]] std::int64_t phase_end(std::int64_t step) const override {
    return (phase_at(step) + 1) * section_.steps_per_layer;
  }
  [[nodiscard]] LossFactors factors(std::int64_t step) const;
  [[nodiscard]] Pass retaining(double coefficient) const;
  [[nodiscard]] Pass forgetting(double coefficient) const;
  /// The phase that trains the layer; -1: none.
  [[nodiscard]] std::int64_t phase_of(std::int64_t layer) const;
  /// Steps after the last count as the last phase, since plans also check runs that are too long.
  [[nodiscard]] UnlearningPlace place(std::int64_t step) const;
  [[nodiscard]] std::int64_t phase_at(std::int64_t step) const;

  configs::ObjectiveSection section_;
  UnlearningPhases phases_;
  std::vector<std::int64_t> layers_;
  std::vector<std::string> metrics_;
  std::optional<NpoWeighting> npo_;
};

SequentialUnlearning::SequentialUnlearning(const configs::ObjectiveSection& section)
    : section_(section),
      phases_{.first_layer = section.first_layer,
              .last_layer = section.last_layer,
              .stride = section.layer_stride,
              .examples = section.steps_per_layer,
              .batch = 1} {
  // The number of layers is not known here; check() verifies it.
  if (section.first_layer >= section.last_layer) {
    layers_ = phases_.layers();
  }
  if (section.forget_loss == "npo") {
    npo_.emplace(section.beta);
  }
  metrics_ = {"retain_loss",   "forget_loss", "retain_grad_norm",   "forget_grad_norm",
              "same_sign_pct", "phase_layer", "retain_coefficient", "forget_coefficient"};
  for (const char* pass : {"retain", "forget"}) {
    for (const std::int64_t layer : layers_) {
      metrics_.push_back(fmt::format("{}_grad_norm/layer_{}", pass, layer));
    }
  }
}

Status SequentialUnlearning::check(std::int64_t layers, std::int64_t steps) const {
  if (section_.first_layer >= layers) {
    return user_error(fmt::format("objective.first_layer is {}, but the model's layers are 0 to {}",
                                  section_.first_layer, layers - 1));
  }
  if (section_.last_layer > section_.first_layer) {
    return user_error(fmt::format("objective.last_layer is {}, above the first one to train ({})",
                                  section_.last_layer, section_.first_layer));
  }
  if (section_.retain_coefficient == 0.0 && section_.forget_coefficient == 0.0) {
    return user_error(
        "objective.retain_coefficient and objective.forget_coefficient are 0: there is nothing to "
        "learn; raise one of them");
  }
  if (steps != phases_.steps()) {
    return user_error(fmt::format(
        "run.steps is {}, but {} layers of objective.steps_per_layer = {} are {} steps; "
        "set run.steps = {}",
        steps, layers_.size(), section_.steps_per_layer, phases_.steps(), phases_.steps()));
  }
  return {};
}

std::int64_t SequentialUnlearning::phase_of(std::int64_t layer) const {
  for (std::size_t phase = 0; phase < layers_.size(); ++phase) {
    if (layers_[phase] == layer) {
      return static_cast<std::int64_t>(phase);
    }
  }
  return -1;
}

std::int64_t SequentialUnlearning::phase_at(std::int64_t step) const {
  return std::min(step, phases_.steps() - 1) / section_.steps_per_layer;
}

UnlearningPlace SequentialUnlearning::place(std::int64_t step) const {
  return unlearning_place(phases_, std::min(step, phases_.steps() - 1));
}

bool SequentialUnlearning::trains(std::int64_t layer, std::int64_t step) const {
  const std::int64_t phase = phase_of(layer);
  const std::int64_t now = phase_at(step);
  return phase >= 0 && (phase == now || (section_.maintain_unlearned && phase < now));
}

std::int64_t SequentialUnlearning::update_number(std::int64_t layer, std::int64_t step) const {
  if (section_.frozen_layers == "zero" && phase_of(layer) >= 0) {
    return step + 1;
  }
  return trains(layer, step) ? step + 1 - phase_of(layer) * section_.steps_per_layer : 0;
}

LossFactors SequentialUnlearning::factors(std::int64_t step) const {
  return loss_factors({.retain = section_.retain_coefficient,
                       .forget = section_.forget_coefficient,
                       .ramp_retain_from_zero = section_.ramp_retain_from_zero,
                       .forget_layer_scale = section_.forget_layer_scale},
                      phases_, place(step));
}

Pass SequentialUnlearning::retaining(double coefficient) const {
  Pass pass{.coefficient = coefficient, .pull = section_.l2sp_coefficient};
  if (section_.retain_loss == "kl") {
    pass.head.row_loss = kernels::RowLoss::divergence;
    pass.compared = Compared::head_inputs;
  } else if (section_.retain_loss == "l2") {
    pass.compared = Compared::layer_outputs;
  }
  return pass;
}

Pass SequentialUnlearning::forgetting(double coefficient) const {
  const std::string& loss = section_.forget_loss;
  Pass pass{.coefficient = coefficient};
  if (loss == "npo") {
    pass.head.weighting = &*npo_;
    pass.compared = Compared::head_inputs;
  } else if (loss == "max_update") {
    pass.source = GradientSource::distances;
  } else {
    pass.head.per_entropy = true;
  }
  if (loss == "max_entropy") {
    // A label smoothing of 1 makes the target the uniform distribution.
    pass.head.label_smoothing = 1.0F;
  } else if (loss == "top_k_entropy") {
    pass.head.row_loss = kernels::RowLoss::top_entropy;
    pass.head.top_k = section_.top_k;
  } else if (loss == "random_targets") {
    pass.target_seed = section_.target_seed;
  }
  return pass;
}

std::vector<Pass> SequentialUnlearning::passes(std::int64_t step) const {
  // Without layers, which check() rejects, callers read only the kinds of the passes.
  const LossFactors now = layers_.empty() ? LossFactors() : factors(step);
  return {retaining(now.retain), forgetting(now.forget)};
}

std::vector<double> SequentialUnlearning::metric_values(std::int64_t step,
                                                        std::span<const PassOutcome> passes,
                                                        const SignAgreement& agreement,
                                                        std::size_t first_unit) const {
  const double share = agreement.elements == 0 ? 0.0
                                               : static_cast<double>(agreement.agreeing) /
                                                     static_cast<double>(agreement.elements);
  std::vector<double> values = {passes[0].loss,
                                passes[1].loss,
                                std::sqrt(passes[0].squared_norm),
                                std::sqrt(passes[1].squared_norm),
                                100.0 * share,
                                static_cast<double>(place(step).layer),
                                factors(step).retain,
                                factors(step).forget};
  for (const PassOutcome& pass : passes) {
    for (const std::int64_t layer : layers_) {
      values.push_back(std::sqrt(pass.unit_squares[first_unit + static_cast<std::size_t>(layer)]));
    }
  }
  return values;
}

}  // namespace

std::unique_ptr<const Objective> make_sequential_unlearning(
    const configs::ObjectiveSection& section) {
  return std::make_unique<SequentialUnlearning>(section);
}

}  // namespace train::engine
