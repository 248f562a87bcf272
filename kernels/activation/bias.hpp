#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"

namespace train::kernels {

/// y[row,:] += bias[row % period,:]. Period 1: the bias of a product. Period seq_len: learned
/// positions (Radford et al. 2019).
struct BiasAddParams {
  void* y = nullptr;           ///< [rows, cols], `stride` elements between rows.
  const void* bias = nullptr;  ///< [period, cols].
  std::int64_t rows = 0, cols = 0, stride = 0;
  std::int64_t period = 1;
  DType dtype = DType::f32;
};

/// dbias[t,:] = sum of dy[row,:] over the rows with row % period == t, overwritten: blocks of
/// BiasGradientParams::block such rows in rising order, then the blocks' sums in theirs.
struct BiasGradientParams {
  static constexpr std::int64_t block = 64;
  const void* dy = nullptr;
  float* dbias = nullptr;  ///< [period, cols].
  std::int64_t rows = 0, cols = 0, stride = 0;
  std::int64_t period = 1;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
