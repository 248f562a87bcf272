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
///
/// Grouped queries (Ainslie et al. 2023): head h reads key and value head h / (heads / kv_heads),
/// and dk, dv are the sums over the heads of a group, in their order.
///
/// Documents: where `positions` are given, [sequences, seq_len] places of the tokens in their
/// documents (0, 1, ... from each document's first token on), a query sees the keys of its own
/// document alone. On the CPU all blocks begin where a document does: what a document yields has
/// the same bits wherever it stands and whatever is beside it.
struct AttentionForwardParams {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  float* lse = nullptr;  ///< [sequences, heads, seq_len]: log of the row sums, for the backward.
  const std::int32_t* positions = nullptr;  ///< Of documents; nullptr: a sequence is one.
  std::int64_t sequences = 0, seq_len = 0, heads = 0, head_dim = 0;
  std::int64_t value_dim = 0;  ///< Of a head of v and out; 0: head_dim.
  std::int64_t kv_heads = 0;   ///< Divides heads; 0: as many.
  std::int64_t window = 0;     ///< Keys that a query sees, its own the last; 0: all.
  float softcap = 0.0F;        ///< c in c tanh(scale q k^T / c), before the softmax; 0: none.
  RowLayout q_layout, k_layout, v_layout, out_layout;
  float scale = 1.0F;  ///< Not negative.
  DType dtype = DType::f32;

  [[nodiscard]] std::int64_t group() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
  [[nodiscard]] std::int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }
};

/// dq, dk, dv are overwritten. `delta` is scratch of [sequences, heads, seq_len].
struct AttentionBackwardParams {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* out = nullptr;
  const void* dout = nullptr;
  const float* lse = nullptr;
  const std::int32_t* positions = nullptr;  ///< The forward pass's.
  float* delta = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::int64_t sequences = 0, seq_len = 0, heads = 0, head_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t kv_heads = 0;
  std::int64_t window = 0;
  float softcap = 0.0F;
  RowLayout q_layout, k_layout, v_layout, out_layout, dout_layout, dq_layout, dk_layout, dv_layout;
  float scale = 1.0F;  ///< Not negative.
  DType dtype = DType::f32;

  [[nodiscard]] std::int64_t group() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
  [[nodiscard]] std::int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }
};

namespace cuda {
/// The widest head that attention is compiled for.
inline constexpr std::int64_t max_head_dim = 256;
}  // namespace cuda

}  // namespace train::kernels
