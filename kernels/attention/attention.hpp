#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"
#include "kernels/norm/norm.hpp"

namespace train::kernels {

/// Causal attention, out = softmax(q k^T * scale) v per (sequence, head), with no T x T matrix in
/// memory: a block of query rows at a time, and the backward pass computes the scores again from
/// lse (Dao et al. 2022). Token b * seq_len + t, head h of a tensor starts at pointer + token *
/// outer_stride + h * inner_stride.
struct AttentionForwardParams {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  float* lse = nullptr;  ///< [sequences, heads, seq_len]: log of the row sums, for the backward.
  std::int64_t sequences = 0, seq_len = 0, heads = 0, head_dim = 0;
  RowLayout q_layout, k_layout, v_layout, out_layout;
  float scale = 1.0F;  ///< Not negative.
  DType dtype = DType::f32;
};

/// dq, dk, dv are overwritten. `delta` is scratch of [sequences, heads, seq_len].
struct AttentionBackwardParams {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* out = nullptr;
  const void* dout = nullptr;
  const float* lse = nullptr;
  float* delta = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::int64_t sequences = 0, seq_len = 0, heads = 0, head_dim = 0;
  RowLayout q_layout, k_layout, v_layout, out_layout, dout_layout, dq_layout, dk_layout, dv_layout;
  float scale = 1.0F;  ///< Not negative.
  DType dtype = DType::f32;
};

namespace cuda {
/// The widest head that attention is compiled for.
inline constexpr std::int64_t max_head_dim = 256;
}  // namespace cuda

}  // namespace train::kernels
