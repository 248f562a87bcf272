#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"
#include "kernels/norm/norm.hpp"

namespace train::kernels {

/// Fills cos and sin, each [seq_len, head_dim / 2]: angle(t, i) = t * theta^(-2i / head_dim).
/// Su et al. 2021. Computed in double, stored as float.
struct RopeTableParams {
  float* cos = nullptr;
  float* sin = nullptr;
  std::int64_t seq_len = 0, head_dim = 0;
  double theta = 10000.0;
};

/// In place, interleaved pairs (2i, 2i+1): y0 = x0 cos - x1 sin, y1 = x0 sin + x1 cos; `inverse`
/// rotates back (the gradient). Row (token, head) as in RowLayout; position = token % seq_len.
struct RopeParams {
  void* x = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::int64_t tokens = 0, seq_len = 0, heads = 0, head_dim = 0;
  RowLayout layout;
  bool inverse = false;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
