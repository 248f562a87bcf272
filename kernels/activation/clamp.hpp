#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"

namespace train::kernels {

/// y = min(max(x, -bound), bound) on strided rows; NaN stays NaN. y may be x.
struct ClampForwardParams {
  const void* x = nullptr;
  void* y = nullptr;
  float bound = 0.0F;  ///< Above 0.
  std::int64_t rows = 0, cols = 0;
  std::int64_t x_stride = 0, y_stride = 0;  ///< Elements between rows.
  DType dtype = DType::f32;
};

/// dx = dy where -bound < x < bound, else 0: at the bounds and where x is NaN, too, as torch.clamp
/// of torch 2.15 has it. dx may be dy.
struct ClampBackwardParams {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;  ///< Row stride as dy.
  float bound = 0.0F;
  std::int64_t rows = 0, cols = 0;
  std::int64_t x_stride = 0, dy_stride = 0;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
