#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"

namespace train::kernels {

/// y[row,:] += bias[row % period,:], or bias[positions[row],:] if positions are given. Period 1:
/// the bias of a linear layer. Period seq_len, or positions: learned position embeddings (Radford
/// et al. 2019).
struct BiasAddParams {
  void* y = nullptr;                        ///< [rows, cols], `stride` elements between rows.
  const void* bias = nullptr;               ///< [period, cols].
  const std::int32_t* positions = nullptr;  ///< [rows], each in [0, period).
  std::int64_t rows = 0, cols = 0, stride = 0;
  std::int64_t period = 1;
  DType dtype = DType::f32;
};

/// dbias[t,:] = sum of dy[row,:] over the rows with row % period == t (or at position t, if
/// positions are given), overwritten. Rows are added in rising order in blocks of
/// BiasGradientParams::kBlock, and the block sums in rising order; with positions, in one rising
/// order.
struct BiasGradientParams {
  static constexpr std::int64_t kBlock = 64;
  const void* dy = nullptr;
  float* dbias = nullptr;                   ///< [period, cols].
  const std::int32_t* positions = nullptr;  ///< [rows], each in [0, period).
  std::int64_t rows = 0, cols = 0, stride = 0;
  std::int64_t period = 1;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
