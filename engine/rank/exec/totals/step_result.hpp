#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/optimizer/exact_sum.hpp"

namespace train::engine {

/// Results of a finished step. Means are over the targets of the global batch, in nats.
struct StepResult {
  double loss = 0.0;  ///< Cross-entropy + z-loss.
  double cross_entropy = 0.0;
  double grad_norm = 0.0;  ///< Before clipping.
  double lr = 0.0;
  bool nonfinite = false;               ///< A loss or norm was not finite; no weight was changed.
  std::vector<double> unit_grad_norms;  ///< One per unit, before clipping.
  /// Optimizer::row_sums() of the updated rows whose gradient this rank finishes; their sum over
  /// ranks covers the model (diagnose()). Empty in other steps and when non-finite.
  std::vector<ExactSum> optimizer_sums;
  /// Values of Objective::metric_names(); for a RowWeighting means over its items, NaN without an
  /// item. Then the mean loss of each source (RankOptions::sources), NaN if the step has no target
  /// of that source, and block_metrics() of the model.
  std::vector<double> metrics = {};
};

/// Mean cross-entropy in nats (no z-loss), by weight, and accuracy over the targets of all
/// evaluation lanes; 0 without any. With Objective::weighting() the mean loss of items, and the
/// share of those that count as right.
struct EvaluationResult {
  double cross_entropy = 0.0;
  double accuracy = 0.0;
  double targets = 0.0;
  std::vector<double> metrics = {};  ///< As StepResult::metrics.
};

/// Origin of the first NaN or Inf, in the order of computation.
struct NonfiniteOrigin {
  bool found = false;
  std::int64_t lane = 0;
  std::size_t unit = 0;
  bool backward = false;
};

}  // namespace train::engine
