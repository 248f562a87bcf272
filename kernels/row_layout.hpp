#pragma once

#include <cstdint>

// Parts of params that users build and pass on.
namespace train::kernels {

/// Rows addressed as (outer, inner): row (o, i) of x starts at x + o * outer_stride + i *
/// inner_stride. A plain [rows, cols] matrix is outer = rows, inner = 1, outer_stride = cols. Heads
/// of a fused projection are outer = tokens, inner = heads.
struct RowLayout {
  std::int64_t outer_stride = 0;
  std::int64_t inner_stride = 0;
};

/// Rotary positions of a norm's rows, as in RopeParams: position = outer index % seq_len, tables
/// [seq_len, cols / 2]. Without tables nothing is rotated.
struct RowRotation {
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::int64_t seq_len = 1;
};

/// Residual addition fused before a norm: sum = base + scale * branch. Without a branch nothing is
/// added.
struct NormResidual {
  const void* base = nullptr;
  const void* branch = nullptr;
  void* sum = nullptr;
  float scale = 1.0F;
};

}  // namespace train::kernels
