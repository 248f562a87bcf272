#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.hpp"
#include "base/fixed_math.hpp"
#include "engine/objective/npo_weighting.hpp"
#include "engine/objective/registry.hpp"

namespace train::engine {
namespace {

GradientJoin join_of(const std::string& text) {
  return text == "sum"         ? GradientJoin::sum
         : text == "same_sign" ? GradientJoin::symmetric
                               : GradientJoin::asymmetric;
}

/// Sequential unlearning: a first pass over what is retained, a second one over what is forgotten.
class SequentialUnlearning final : public Objective, private StepProgram {
 public:
  explicit SequentialUnlearning(const configs::ObjectiveSection& section);

  [[nodiscard]] RowKind rows() const override { return RowKind::documents; }
  [[nodiscard]] LaneColumns columns() const override {
    return {.positions = true, .weights = true, .sequences = npo_.has_value()};
  }
  [[nodiscard]] const StepProgram* program() const override { return this; }

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
  [[nodiscard]] double coefficient(Pass pass, std::int64_t step) const override;
  [[nodiscard]] float label_smoothing(Pass pass) const override;
  [[nodiscard]] double loss_unit(Pass pass, std::int64_t vocab) const override;
  [[nodiscard]] kernels::RowLoss row_loss(Pass pass) const override;
  [[nodiscard]] std::int64_t top_k() const override { return section_.top_k; }
  [[nodiscard]] bool reads_frozen(Pass pass) const override {
    return pass == Pass::first ? section_.retain_loss != "nll" : npo_.has_value();
  }
  [[nodiscard]] bool compares_outputs(Pass pass) const override {
    return pass == Pass::first && section_.retain_loss == "l2";
  }
  [[nodiscard]] const RowWeighting* weighting() const override { return npo_ ? &*npo_ : nullptr; }
  void set_targets(Pass pass, std::int64_t step, std::int64_t first_row, std::int64_t vocab,
                   std::span<std::int32_t> targets) const override;
  [[nodiscard]] double pull() const override { return section_.l2sp_coefficient; }
  [[nodiscard]] bool rewards_distance() const override {
    return section_.forget_loss == "max_update";
  }
  [[nodiscard]] GradientJoin join() const override { return join_of(section_.gradient_join); }
  [[nodiscard]] const std::vector<std::string>& metrics() const override { return metrics_; }
  [[nodiscard]] std::vector<double> metric_values(std::int64_t step,
                                                  std::span<const PassOutcome> passes,
                                                  const SignAgreement& agreement,
                                                  std::size_t first_unit) const override;

  /// The phase that trains the layer; -1: none.
  [[nodiscard]] std::int64_t phase_of(std::int64_t layer) const;
  /// A step behind the last is one of the last phase: plans ask about a run that is too long.
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
  // A model's last layer is not known here; check() is what says so.
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

double SequentialUnlearning::coefficient(Pass pass, std::int64_t step) const {
  const UnlearningFactors factors{.retain = section_.retain_coefficient,
                                  .forget = section_.forget_coefficient,
                                  .ramp_retain_from_zero = section_.ramp_retain_from_zero,
                                  .forget_layer_scale = section_.forget_layer_scale};
  const LossFactors now = loss_factors(factors, phases_, place(step));
  return pass == Pass::first ? now.retain : now.forget;
}

float SequentialUnlearning::label_smoothing(Pass pass) const {
  // With all of the label smoothed away the target is the uniform distribution.
  return pass == Pass::second && section_.forget_loss == "max_entropy" ? 1.0F : 0.0F;
}

double SequentialUnlearning::loss_unit(Pass pass, std::int64_t vocab) const {
  if (pass == Pass::first || section_.forget_loss == "npo" || rewards_distance()) {
    return 1.0;
  }
  const bool top = section_.forget_loss == "top_k_entropy";
  return 1.0 / fixed::log(static_cast<double>(top ? std::min(section_.top_k, vocab) : vocab));
}

kernels::RowLoss SequentialUnlearning::row_loss(Pass pass) const {
  const bool retain = pass == Pass::first;
  return retain && section_.retain_loss == "kl"               ? kernels::RowLoss::divergence
         : !retain && section_.forget_loss == "top_k_entropy" ? kernels::RowLoss::top_entropy
                                                              : kernels::RowLoss::cross_entropy;
}

void SequentialUnlearning::set_targets(Pass pass, std::int64_t step, std::int64_t first_row,
                                       std::int64_t vocab, std::span<std::int32_t> targets) const {
  if (pass != Pass::second || section_.forget_loss != "random_targets") {
    return;
  }
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] >= 0) {
      targets[row] = drawn_target(section_.target_seed, step,
                                  first_row + static_cast<std::int64_t>(row), vocab);
    }
  }
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
                                coefficient(Pass::first, step),
                                coefficient(Pass::second, step)};
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
