#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/head/loss_sums.hpp"

namespace train::kernels {

/// Distances of hidden states from those of a reference: with d = ||x - reference|| of a row,
///   loss = loss_scale * sum w d, over the rows with a target
///   d loss / d x = loss_scale w (x - reference) / d, and 0 where d is 0.
/// The gradient overwrites the reference; it is 0 in rows without a target. sums->cross_entropy
/// becomes `share` times the sum of w d, added to the old value if `add`; targets and weights are
/// those of the rows, the other sums 0. Differences are floats, d is a double.
struct RowDistanceParams {
  const void* x = nullptr;                ///< [rows, cols].
  void* reference = nullptr;              ///< [rows, cols], overwritten by the gradient.
  const std::int32_t* targets = nullptr;  ///< [rows]; negative: no target.
  const float* row_weights = nullptr;     ///< w, [rows]; nullptr: 1.
  LossSums* sums = nullptr;               ///< One element.
  double* row_terms = nullptr;            ///< Scratch [rows].
  std::int64_t rows = 0, cols = 0;
  float loss_scale = 1.0F;
  double share = 1.0;
  bool add = false;
  DType dtype = DType::f32;

  [[nodiscard]] constexpr float row_weight(std::int64_t row) const {
    return row_weights == nullptr ? 1.0F : row_weights[row];
  }
};

}  // namespace train::kernels
