#pragma once

namespace train::kernels {

/// Sums in double over the rows of one lane that have a target, in an order determined by their
/// number.
struct LossSums {
  double cross_entropy = 0.0;  ///< Sum of CE (below) times row weight.
  double z_squared = 0.0;      ///< Sum of logsumexp(logits)^2, unweighted.
  double correct = 0.0;        ///< Rows whose largest logit is the target (first one on ties).
  double targets = 0.0;        ///< Number of such rows.
  double weights = 0.0;        ///< Sum of row weights; without weights equal to `targets`.
};

}  // namespace train::kernels
