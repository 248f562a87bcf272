#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/kinds.hpp"
#include "kernels/row_layout.hpp"

namespace train::kernels {

struct NormForwardParams {
  NormKind kind = NormKind::layer;
  const void* x = nullptr;
  const void* weight = nullptr;  ///< [cols].
  void* y = nullptr;             ///< May be x itself (same layout).
  float* mean = nullptr;         ///< [outer * inner], written for NormKind::layer only.
  float* rstd = nullptr;         ///< [outer * inner].
  std::int64_t outer = 0, inner = 1, cols = 0;
  RowLayout x_layout, y_layout;
  float eps = 1e-5F;
  float gain_offset = 0.0F;    ///< w = gain_offset + weight; 1 for Gemma.
  NormResidual residual = {};  ///< x is its sum, written first; all its rows have x's layout.
  RowRotation rotation = {};   ///< Applied to y, after the norm.
  DType dtype = DType::f32;
};

/// dx (+)= gradient of the norm at x; dweight[cols] = sum over rows of dy * xhat, in a fixed order.
struct NormBackwardParams {
  NormKind kind = NormKind::layer;
  const void* x = nullptr;
  const void* weight = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;        ///< May be dy itself if not accumulating (same layout).
  float* dweight = nullptr;  ///< [cols], overwritten; nullptr: not wanted.
  std::int64_t outer = 0, inner = 1, cols = 0;
  RowLayout x_layout, dy_layout, dx_layout;
  float gain_offset = 0.0F;  ///< As in the forward pass.
  float dy_scale = 1.0F;     ///< dy is read as dy_scale * dy (factor of the residual branch).
  bool accumulate_dx = false;
  /// As in the forward pass: dy is first rotated back, in place. REQUIRES: dx is dy.
  RowRotation rotation = {};
  DType dtype = DType::f32;
};

}  // namespace train::kernels
