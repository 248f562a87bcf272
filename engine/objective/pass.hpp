#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/command.hpp"
#include "engine/objective/row_weighting.hpp"
#include "kernels/kinds.hpp"

namespace train::engine {

/// Loss of the head in the rows of a pass.
struct HeadLoss {
  kernels::RowLoss row_loss = kernels::RowLoss::cross_entropy;  ///< HeadLossParams, as are these:
  float label_smoothing = 0.0F;
  std::int64_t top_k = 0;
  /// In units of the largest possible entropy: the mean is divided by the log of top_k, or of the
  /// vocabulary if top_k is 0 or larger than that.
  bool per_entropy = false;
  /// Computes row weights from the rows' log-probabilities; lives as long as the objective. Null:
  /// the weights are the data's, known before the forward pass, and one pass over the head
  /// suffices.
  const RowWeighting* weighting = nullptr;

  /// Factor of the mean of the rows' losses.
  [[nodiscard]] double unit(std::int64_t vocab) const;
};

/// Part of the model that a pass compares with the frozen copy of the run's initial model.
enum class Compared : std::uint8_t {
  nothing,
  head_inputs,    ///< Inputs of the head: for its row loss, or for its weighting's references.
  layer_outputs,  ///< Outputs of the layers that the step trains: the loss is the mean of their
                  ///< rows' distances; the pass skips units above the highest of these layers.
};

/// Source of a pass's gradient.
enum class GradientSource : std::uint8_t {
  rows,
  /// No rows, in the last of several passes: the loss is minus the sum of the Euclidean distances
  /// of the trained tensors from their initial values. The gradient of a tensor has the length of
  /// the coefficient and points back to the initial value, or is 0 while the tensor has not moved.
  /// The previous pass measures the distances, and the lanes of this one do nothing.
  distances,
};

/// One pass of a step over its lanes, forward and backward. Passes of a step differ by step in the
/// coefficient alone. Plain data.
///
/// If a step has several passes, each reads its own stream of rows: the reduced gradient of each
/// but the last is kept (GradientUse::kept), joined with earlier ones; the last one's
/// (GradientUse::applied) is joined with the kept gradient, and the result is clipped and read by
/// the optimizer. All are reduced before they are joined, so signs are those of complete gradients,
/// on any ranks. Before a comparing pass the frozen copy makes a forward pass over the same rows
/// (LossUse::compared), which leaves the compared values on the rank of the lane. The copy shares
/// the model's head, which is frozen.
struct Pass {
  double coefficient = 1.0;  ///< Factor of the mean loss.
  HeadLoss head = {};
  Compared compared = Compared::nothing;
  GradientSource source = GradientSource::rows;
  /// Factor of the squared distance of the trained weights from their initial values (L2-SP). Its
  /// gradient, twice the factor times the distance, is added to this pass's without the
  /// coefficient. 0: none.
  double pull = 0.0;
  /// Targets are drawn with this seed (draw_targets()); none: they are the data's.
  std::optional<std::uint64_t> target_seed = {};

  [[nodiscard]] bool reads_first_weights() const {
    return pull > 0.0 || source == GradientSource::distances;
  }
};

/// "first pass", "second pass", "pass 3": for people, and for what identifies data.
[[nodiscard]] std::string pass_name(std::size_t number);

/// Join by element of a pass's gradient f with r, the joined gradient of the passes before it.
/// Elements agree where both are above 0 or both below, even if their product underflows.
enum class GradientJoin : std::uint8_t {
  sum,         ///< r + f.
  symmetric,   ///< r + f where they agree, else 0.
  asymmetric,  ///< r + f where they agree, else r.
};

/// Outcome of one pass of a step, over the lanes of all ranks.
struct PassOutcome {
  double loss = 0.0;                 ///< Mean over its targets, without coefficient.
  double squared_norm = 0.0;         ///< Squared norm of the gradient, with the coefficient.
  std::vector<double> unit_squares;  ///< Squared norm of each unit's gradient.
};

/// Number of elements in which the last pass's gradient agrees (GradientJoin) with the joined
/// gradient of the passes before it, over all trained parameters.
struct SignAgreement {
  std::int64_t agreeing = 0;
  std::int64_t elements = 0;
};

/// The target that is drawn for row `row` of step `step`: uniform over the vocabulary, a pure
/// function of its arguments.
[[nodiscard]] std::int32_t drawn_target(std::uint64_t seed, std::int64_t step, std::int64_t row,
                                        std::int64_t vocab);
/// Replaces existing targets with drawn ones. `first_row`: the lane's first position among those of
/// the step.
void draw_targets(std::uint64_t seed, std::int64_t step, std::int64_t first_row, std::int64_t vocab,
                  std::span<std::int32_t> targets);

}  // namespace train::engine
