#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/command.hpp"
#include "engine/objective/row_weighting.hpp"
#include "engine/objective/unlearning.hpp"
#include "kernels/head/head_loss.hpp"

namespace train::engine {

/// What one pass of a step came to, over the lanes of all ranks.
struct PassOutcome {
  double loss = 0.0;                 ///< Mean over its targets, without coefficient.
  double squared_norm = 0.0;         ///< Of its gradient, with the coefficient.
  std::vector<double> unit_squares;  ///< The same of each unit.
};

/// How the elements of both gradients agree, over all that the step trains.
struct SignAgreement {
  std::int64_t agreeing = 0;
  std::int64_t elements = 0;
};

/// A step of two passes over different rows: the first one's reduced gradient is kept
/// (CommandKind::gradient), then that of the second (CommandKind::train_step) is joined with it,
/// and the result is what is clipped and what the optimizer reads. Both are reduced before they are
/// joined, so signs are those of whole gradients, whoever holds their rows.
///
/// A pass may compare the model with the frozen copy that began the run: then the copy's forward
/// pass over the same rows (CommandKind::reference) comes right before it, and leaves what its head
/// reads on the rank that has the lane. The head itself is frozen, so it is the copy's, too.
///
/// A step trains some units; in the others' place the joined gradient is 0.
/// Threading: immutable. Pure functions of options and step, the same on every rank.
class StepProgram {
 public:
  /// Of the passes: that of of_first_pass(), that of all others with gradients.
  enum class Pass : std::uint8_t { first, second };
  [[nodiscard]] static constexpr Pass pass_of(CommandKind kind) {
    return of_first_pass(kind) ? Pass::first : Pass::second;
  }

  /// The number of the CommandKind::reference of a pass, and which one has a number.
  struct FrozenPass {
    std::int64_t step = 0;
    Pass pass = Pass::first;
  };
  [[nodiscard]] static constexpr std::int64_t number_of(const FrozenPass& frozen) {
    return 2 * frozen.step + (frozen.pass == Pass::first ? 0 : 1);
  }
  [[nodiscard]] static constexpr FrozenPass frozen_pass(std::int64_t number) {
    return {.step = number / 2, .pass = number % 2 == 0 ? Pass::first : Pass::second};
  }

  StepProgram() = default;
  virtual ~StepProgram() = default;
  StepProgram(const StepProgram&) = delete;
  StepProgram& operator=(const StepProgram&) = delete;

  /// Error (user) when a model of so many layers, or a run of so many steps, does not fit.
  [[nodiscard]] virtual Status check(std::int64_t layers, std::int64_t steps) const = 0;
  /// Some step trains the layer; the other parameters are frozen.
  [[nodiscard]] virtual bool ever_trains(std::int64_t layer) const = 0;
  /// Step `step` (from 0) trains the layer.
  [[nodiscard]] virtual bool trains(std::int64_t layer, std::int64_t step) const = 0;
  /// The number of the layer's update in step `step`, from 1; 0: it has none.
  [[nodiscard]] virtual std::int64_t update_number(std::int64_t layer, std::int64_t step) const = 0;

  /// Each layer is trained in one phase alone, and no other step touches it: it needs gradients,
  /// masters and moments for that phase only.
  [[nodiscard]] virtual bool state_by_phase() const = 0;
  /// The step behind the phase of step `step`; of a step behind the last one that of the last.
  [[nodiscard]] virtual std::int64_t phase_end(std::int64_t step) const = 0;
  /// Step `step` is the first of a phase that is not the first one.
  [[nodiscard]] bool begins_phase(std::int64_t step) const {
    return step > 0 && phase_end(step - 1) == step && phase_end(step) > step;
  }

  /// What the pass's mean loss is multiplied by.
  [[nodiscard]] virtual double coefficient(Pass pass, std::int64_t step) const = 0;
  /// HeadLossParams, of the pass.
  [[nodiscard]] virtual float label_smoothing(Pass /*pass*/) const { return 0.0F; }
  /// The loss of the pass is its mean cross-entropy times this.
  [[nodiscard]] virtual double loss_unit(Pass /*pass*/, std::int64_t /*vocab*/) const {
    return 1.0;
  }
  /// What is lost in a row of the pass, and of how many of the largest logits (HeadLossParams).
  [[nodiscard]] virtual kernels::RowLoss row_loss(Pass /*pass*/) const {
    return kernels::RowLoss::cross_entropy;
  }
  [[nodiscard]] virtual std::int64_t top_k() const { return 0; }
  /// Whether the pass compares the model with its frozen copy.
  [[nodiscard]] virtual bool reads_frozen(Pass /*pass*/) const { return false; }
  /// Whether it compares outputs of the layers that the step trains, and not what the head makes
  /// (reads_frozen(), then): its loss is the mean of their rows' distances, and whatever lies above
  /// the highest of them has no part in the pass.
  [[nodiscard]] virtual bool compares_outputs(Pass /*pass*/) const { return false; }
  /// Where row weights of the second pass follow from the rows' log-probabilities, how, as
  /// Objective::weighting(): it has no metrics, and its references are the frozen copy's. Its loss
  /// is divided by the weight of the pass's rows (RankOptions::step_weight). Null: they are the
  /// data's.
  [[nodiscard]] virtual const RowWeighting* weighting() const { return nullptr; }
  /// Puts the pass's own targets in the place of the data's. `first_row`: the lane's first position
  /// among those of the step.
  virtual void set_targets(Pass /*pass*/, std::int64_t /*step*/, std::int64_t /*first_row*/,
                           std::int64_t /*vocab*/, std::span<std::int32_t> /*targets*/) const {}
  /// By what the squares of the trained weights' distances from those that began the run are
  /// multiplied: their gradient, twice that times the distance, enters the first pass's, and no
  /// coefficient multiplies it. 0: they are not.
  [[nodiscard]] virtual double pull() const { return 0.0; }
  /// The second pass has no rows: it loses minus the sum of the Euclidean distances of the tensors
  /// that the step trains from those that began the run. The gradient of a tensor has a length of
  /// the coefficient and the direction back to where it began, or is 0 if it is still there. The
  /// first pass measures the distances, the second one's lanes do nothing.
  [[nodiscard]] virtual bool rewards_distance() const { return false; }
  /// Whether lanes of such a command do nothing, for that reason.
  [[nodiscard]] bool without_rows(CommandKind kind) const {
    return rewards_distance() && has_backward(kind) && pass_of(kind) == Pass::second;
  }
  /// Whether a step reads the weights that began the run, of what it trains.
  [[nodiscard]] bool reads_first_weights() const { return pull() > 0.0 || rewards_distance(); }
  [[nodiscard]] virtual GradientJoin join() const = 0;

  /// As metrics.jsonl has them, and what they are in step `step`.
  [[nodiscard]] virtual const std::vector<std::string>& metrics() const = 0;
  /// `first_unit`: the unit of layer 0.
  [[nodiscard]] virtual std::vector<double> metric_values(std::int64_t step,
                                                          std::span<const PassOutcome> passes,
                                                          const SignAgreement& agreement,
                                                          std::size_t first_unit) const = 0;
};

}  // namespace train::engine
