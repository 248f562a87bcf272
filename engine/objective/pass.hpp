#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/command.hpp"
#include "engine/objective/row_weighting.hpp"
#include "kernels/head/head_loss.hpp"

namespace train::engine {

/// What the head loses in the rows of a pass.
struct HeadLoss {
  kernels::RowLoss row_loss = kernels::RowLoss::cross_entropy;  ///< HeadLossParams, as are these:
  float label_smoothing = 0.0F;
  std::int64_t top_k = 0;
  /// In units of the largest entropy that it can be of: the mean is divided by the log of top_k, or
  /// of the vocabulary where top_k is 0 or more than that.
  bool per_entropy = false;
  /// Where row weights follow from the rows' log-probabilities, how; lives as long as the
  /// objective. Null: they are the data's, known before the forward pass, and the head is passed
  /// over once.
  const RowWeighting* weighting = nullptr;

  /// What the mean of the rows' losses is multiplied by.
  [[nodiscard]] double unit(std::int64_t vocab) const;
};

/// What a pass compares of the model with the copy of it that began the run.
enum class Compared : std::uint8_t {
  nothing,
  head_inputs,    ///< What the head reads: for its row loss, or for its weighting's references.
  layer_outputs,  ///< Outputs of the layers that the step trains: the loss is the mean of their
                  ///< rows' distances; what lies above the highest of them has no part in the pass.
};

/// What the gradient of a pass is made of.
enum class GradientSource : std::uint8_t {
  rows,
  /// No rows at all: the pass loses minus the sum of the Euclidean distances of the tensors that
  /// the step trains from those that began the run. The gradient of a tensor has a length of the
  /// coefficient and the direction back to where it began, or is 0 if it is still there. The pass
  /// before measures the distances, and the lanes of this one do nothing.
  distances,
};

/// One pass of a step over its lanes, forward and backward. Passes of a step differ by step in the
/// coefficient alone. Plain data.
///
/// A step of two reads two streams of rows: the first pass's reduced gradient is kept
/// (CommandKind::gradient), then that of the second (CommandKind::train_step) is joined with it,
/// and the result is what is clipped and what the optimizer reads. Both are reduced before they are
/// joined, so signs are those of whole gradients, whoever holds their rows. Before a pass that
/// compares comes the frozen copy's forward pass over the same rows (CommandKind::reference), which
/// leaves what is compared on the rank that has the lane. The head of the copy is the model's: it
/// is frozen.
struct Pass {
  double coefficient = 1.0;  ///< What the mean loss is multiplied by.
  HeadLoss head = {};
  Compared compared = Compared::nothing;
  GradientSource source = GradientSource::rows;
  /// By what the squares of the trained weights' distances from those that began the run are
  /// multiplied: their gradient, twice that times the distance, enters this pass's, and no
  /// coefficient multiplies it. 0: they are not. Of the first of two passes.
  double pull = 0.0;
  /// Targets are drawn with this seed (draw_targets()); none: they are the data's.
  std::optional<std::uint64_t> target_seed = {};

  [[nodiscard]] bool reads_first_weights() const {
    return pull > 0.0 || source == GradientSource::distances;
  }
};

/// The pass that lanes with backward passes are of. REQUIRES: has_backward(kind).
[[nodiscard]] inline const Pass& pass_of(const std::vector<Pass>& passes, CommandKind kind) {
  return of_first_pass(kind) ? passes.front() : passes.back();
}

/// Of a step of two passes: which of them a CommandKind::reference comes before, and its number.
struct StepPass {
  std::int64_t step = 0;
  std::size_t pass = 0;
};
[[nodiscard]] constexpr std::int64_t number_of(const StepPass& of) {
  return 2 * of.step + static_cast<std::int64_t>(of.pass);
}
[[nodiscard]] constexpr StepPass step_pass(std::int64_t number) {
  return {.step = number / 2, .pass = static_cast<std::size_t>(number % 2)};
}

/// How the gradients r of a step's first pass and f of its second are joined, element by element.
/// They agree where both are above 0 or both below: so their product may underflow.
enum class GradientJoin : std::uint8_t {
  sum,         ///< r + f.
  symmetric,   ///< r + f where they agree, else 0.
  asymmetric,  ///< r + f where they agree, else r.
};

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

/// The target that is drawn for row `row` of step `step`: uniform over the vocabulary, a pure
/// function of its arguments.
[[nodiscard]] std::int32_t drawn_target(std::uint64_t seed, std::int64_t step, std::int64_t row,
                                        std::int64_t vocab);
/// Puts drawn targets in the place of those that there are. `first_row`: the lane's first position
/// among those of the step.
void draw_targets(std::uint64_t seed, std::int64_t step, std::int64_t first_row, std::int64_t vocab,
                  std::span<std::int32_t> targets);

}  // namespace train::engine
