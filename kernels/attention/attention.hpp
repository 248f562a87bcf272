#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/row_layout.hpp"

namespace train::kernels {

/// Causal attention, out = softmax(q k^T * scale) v per (sequence, head), without a T x T matrix in
/// memory: query rows are processed in blocks, and the backward pass recomputes the scores from lse
/// (Dao et al. 2022). Token b * seq_len + t, head h of a tensor starts at pointer + token *
/// outer_stride + h * inner_stride.
///
/// Grouped queries (Ainslie et al. 2023): head h reads key and value head h / (heads / kv_heads);
/// dk and dv are summed over the heads of a group, in order.
///
/// Sinks: with `sinks` the softmax of head h has one more score, sinks[h], whose value is zero: it
/// is neither scaled nor capped, and lse includes it (Xiao et al. 2023, GPT-OSS). The backward pass
/// of q, k and v then needs nothing else; attention_sinks_backward gives the sinks' own gradient.
///
/// Prefix: with a window the first `prefix` keys of a document stay visible to all its queries
/// (Hymba's learned tokens). Without a window it changes nothing.
///
/// Documents: `positions`, if given, holds each token's place in its document as [sequences,
/// seq_len] (0, 1, ... from each document's first token on), and a query sees only keys of its own
/// document. On the CPU all blocks begin at a document's start, so a document's results have the
/// same bits wherever it stands and whatever is packed beside it.
struct AttentionForwardParams {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  float* lse = nullptr;  ///< [sequences, heads, seq_len]: log of the row sums, kept for backward.
  const std::int32_t* positions = nullptr;  ///< Position in document; nullptr: one document per
                                            ///< sequence.
  std::int64_t sequences = 0, seq_len = 0, heads = 0, head_dim = 0;
  std::int64_t value_dim = 0;  ///< Head size of v and out; 0: head_dim.
  std::int64_t kv_heads = 0;   ///< Divides heads; 0: equal to heads.
  std::int64_t window = 0;     ///< Number of keys a query sees, its own included; 0: all.
  std::int64_t prefix = 0;     ///< REQUIRES, unless 0: no softcap; on CUDA fp32.
  float softcap = 0.0F;        ///< c in c tanh(scale q k^T / c), before the softmax; 0: none.
  RowLayout q_layout, k_layout, v_layout, out_layout;
  float scale = 1.0F;  ///< Not negative.
  DType dtype = DType::f32;
  const float* sinks = nullptr;  ///< [heads]; nullptr: none.

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
  const std::int32_t* positions = nullptr;  ///< As in the forward pass.
  float* delta = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::int64_t sequences = 0, seq_len = 0, heads = 0, head_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t kv_heads = 0;
  std::int64_t window = 0;
  std::int64_t prefix = 0;
  float softcap = 0.0F;
  RowLayout q_layout, k_layout, v_layout, out_layout, dout_layout, dq_layout, dk_layout, dv_layout;
  float scale = 1.0F;  ///< Not negative.
  DType dtype = DType::f32;

  [[nodiscard]] std::int64_t group() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
  [[nodiscard]] std::int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }
};

/// dsinks[h] = - sum over rows of exp(sinks[h] - lse) delta, overwritten: rows in an order that the
/// shape alone fixes, each sequence by itself, then sequences rising. `delta` as attention_backward
/// leaves it.
struct AttentionSinksBackwardParams {
  const float* sinks = nullptr;  ///< [heads].
  const float* lse = nullptr;    ///< [sequences, heads, seq_len].
  const float* delta = nullptr;  ///< Likewise.
  float* dsinks = nullptr;       ///< [heads].
  std::int64_t sequences = 0, seq_len = 0, heads = 0;
};

namespace cuda {
/// Largest head size that attention is compiled for.
inline constexpr std::int64_t kMaxHeadDim = 256;
}  // namespace cuda

}  // namespace train::kernels
