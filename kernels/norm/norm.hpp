#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"

namespace train::kernels {

/// Rows addressed as (outer, inner): row (o, i) of x starts at x + o * outer_stride + i *
/// inner_stride. A plain [rows, cols] matrix is outer = rows, inner = 1, outer_stride = cols. Heads
/// of a fused projection are outer = tokens, inner = heads.
struct RowLayout {
  std::int64_t outer_stride = 0;
  std::int64_t inner_stride = 0;
};

enum class NormKind : std::uint8_t {
  layer,  ///< y = (x - mean) * rstd * w, rstd = 1/sqrt(var + eps) (biased variance). Ba et al.
          ///< 2016, no bias.
  rms,    ///< y = x * rstd * w, rstd = 1/sqrt(mean(x^2) + eps). Zhang & Sennrich 2019.
};

/// Rotary positions of a norm's rows, as RopeParams has them: position = outer index % seq_len,
/// tables [seq_len, cols / 2]. No tables: no rotation.
struct RowRotation {
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::int64_t seq_len = 1;
};

/// The residual addition before a norm, on the way: sum = base + scale * branch. No branch: none.
struct NormResidual {
  const void* base = nullptr;
  const void* branch = nullptr;
  void* sum = nullptr;
  float scale = 1.0F;
};

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
  float gain_offset = 0.0F;  ///< w is this plus weight: 1 in Gemma's.
  NormResidual residual =
      {};                     ///< x is its sum, written first; all of its rows are laid out as x's.
  RowRotation rotation = {};  ///< Of y, after the norm.
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
  void* dx = nullptr;        ///< May be dy itself when not accumulating (same layout).
  float* dweight = nullptr;  ///< [cols], overwritten; nullptr: not wanted.
  std::int64_t outer = 0, inner = 1, cols = 0;
  RowLayout x_layout, dy_layout, dx_layout;
  float gain_offset = 0.0F;  ///< The forward pass's.
  float dy_scale = 1.0F;     ///< dy is read as dy_scale * dy (the residual branch's factor).
  bool accumulate_dx = false;
  /// The forward pass's: dy is rotated back first, in its place. REQUIRES: dx is dy.
  RowRotation rotation = {};
  DType dtype = DType::f32;
};

}  // namespace train::kernels
