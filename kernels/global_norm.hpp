#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"

namespace train::kernels {

/// row_sums[r] = sum over columns of x[r,c]^2 in double, in a fixed order that depends on cols
/// alone: a row is never split between ranks, so the sums are the same at any sharding.
struct RowSquareSumsParams {
  const float* x = nullptr;
  double* row_sums = nullptr;  ///< [rows].
  std::int64_t rows = 0, cols = 0;
};

/// *out = sum of values[0..count) in the canonical binary tree (split at the largest power of two
/// below the count).
struct TreeSumParams {
  const double* values = nullptr;
  double* out = nullptr;
  std::int64_t count = 0;
};

/// What the optimizer reads on the device, so that no host waits for the norm.
struct UpdateGate {
  float grad_scale = 1.0F;  ///< min(1, clip / (norm + 1e-6)); 1 when clip is 0.
  float grad_norm = 0.0F;   ///< Before clipping.
  std::int32_t poisoned =
      0;  ///< Sticky: a loss or norm was not finite; no weight changes any more.
  std::int32_t reserved = 0;
};

/// Fills gate from the squared norm and the loss; sets poisoned if either is not finite.
struct ClipScaleParams {
  const double* squared_norm = nullptr;
  const double* loss = nullptr;
  UpdateGate* gate = nullptr;
  float clip = 0.0F;
};

namespace cpu {
void row_square_sums(Stream& stream, const RowSquareSumsParams& params);
void tree_sum(Stream& stream, const TreeSumParams& params);
void clip_scale(Stream& stream, const ClipScaleParams& params);
}  // namespace cpu

}  // namespace train::kernels
