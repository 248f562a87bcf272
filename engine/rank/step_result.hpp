#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/rank/exact_sum.hpp"

namespace train::engine {

/// What a finished step reports. Means are over the global batch, in nats.
struct StepResult {
  double loss = 0.0;  ///< Cross-entropy + z-loss.
  double cross_entropy = 0.0;
  double grad_norm = 0.0;  ///< Before clipping.
  double lr = 0.0;
  bool nonfinite = false;               ///< A loss or norm was not finite; no weight was changed.
  std::vector<double> unit_grad_norms;  ///< Of each unit, before clipping.
  /// Of the updated rows whose gradient this rank finishes: Optimizer::row_sums(), which added up
  /// over ranks are those of the model (diagnose()). Empty in other steps and when non-finite.
  std::vector<ExactSum> optimizer_sums;
};

/// Mean cross-entropy in nats (no z-loss) and accuracy over the targets of all evaluation lanes.
struct EvaluationResult {
  double cross_entropy = 0.0;
  double accuracy = 0.0;
  double targets = 0.0;
};

/// Where NaN or Inf first appeared, in the order of computation.
struct NonfiniteOrigin {
  bool found = false;
  std::int64_t lane = 0;
  std::size_t unit = 0;
  bool backward = false;
};

}  // namespace train::engine
