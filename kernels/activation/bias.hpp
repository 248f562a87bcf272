#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"

namespace train::kernels {

/// y[row,:] += bias[row % period,:], or where positions are given bias[positions[row],:]. Period 1:
/// the bias of a product. Period seq_len, or positions: learned positions (Radford et al. 2019).
struct BiasAddParams {
  void* y = nullptr;                        ///< [rows, cols], `stride` elements between rows.
  const void* bias = nullptr;               ///< [period, cols].
  const std::int32_t* positions = nullptr;  ///< [rows], each in [0, period).
  std::int64_t rows = 0, cols = 0, stride = 0;
  std::int64_t period = 1;
  DType dtype = DType::f32;
};

/// dbias[t,:] = sum of dy[row,:] over the rows with row % period == t, overwritten: blocks of
/// BiasGradientParams::block such rows in rising order, then the blocks' sums in theirs. Where
/// positions are given: of the rows at position t, in rising order.
struct BiasGradientParams {
  static constexpr std::int64_t block = 64;
  const void* dy = nullptr;
  float* dbias = nullptr;                   ///< [period, cols].
  const std::int32_t* positions = nullptr;  ///< [rows], each in [0, period).
  std::int64_t rows = 0, cols = 0, stride = 0;
  std::int64_t period = 1;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
