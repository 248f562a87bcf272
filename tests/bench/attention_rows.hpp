#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/backend.hpp"

namespace train::bench {

/// Attention of sequences whose queries, keys and values lie side by side in `qkv`, their gradients
/// in `dqkv`; outputs packed.
struct AttentionCase {
  std::int64_t sequences, seq_len, heads, head_dim;
  kernels::DType dtype;

  [[nodiscard]] std::int64_t width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t tokens() const { return sequences * seq_len; }
};

/// Its memory, where the kernels of the bench work.
struct AttentionMemory {
  const void* qkv;
  void* out;
  const void* dout;
  void* dqkv;
  float* lse;
  float* delta;
};

/// The rows of both passes. `Bench`: has kernels(), and row(name, flop, bytes, work).
template <class Bench>
void attention_rows(Bench& bench, const AttentionCase& c, const AttentionMemory& memory) {
  const kernels::RowLayout fused{3 * c.width(), c.head_dim};
  const kernels::RowLayout packed{c.width(), c.head_dim};
  const std::size_t third = static_cast<std::size_t>(c.width()) * kernels::size_of(c.dtype);
  const auto* qkv = static_cast<const std::byte*>(memory.qkv);
  auto* dqkv = static_cast<std::byte*>(memory.dqkv);
  // Two products forward and five backward, half of each below the diagonal.
  const double product =
      static_cast<double>(c.sequences * c.heads * c.seq_len * c.seq_len * c.head_dim);
  const std::string shape =
      fmt::format("{} x T {}, {} x {}", c.sequences, c.seq_len, c.heads, c.head_dim);
  bench.row("attention forward  " + shape, 2 * product, 0, [&](kernels::Stream& stream) {
    bench.kernels().attention_forward(stream, {.q = qkv,
                                               .k = qkv + third,
                                               .v = qkv + 2 * third,
                                               .out = memory.out,
                                               .lse = memory.lse,
                                               .sequences = c.sequences,
                                               .seq_len = c.seq_len,
                                               .heads = c.heads,
                                               .head_dim = c.head_dim,
                                               .q_layout = fused,
                                               .k_layout = fused,
                                               .v_layout = fused,
                                               .out_layout = packed,
                                               .scale = 0.125F,
                                               .dtype = c.dtype});
  });
  bench.row("attention backward " + shape, 5 * product, 0, [&](kernels::Stream& stream) {
    bench.kernels().attention_backward(stream, {.q = qkv,
                                                .k = qkv + third,
                                                .v = qkv + 2 * third,
                                                .out = memory.out,
                                                .dout = memory.dout,
                                                .lse = memory.lse,
                                                .delta = memory.delta,
                                                .dq = dqkv,
                                                .dk = dqkv + third,
                                                .dv = dqkv + 2 * third,
                                                .sequences = c.sequences,
                                                .seq_len = c.seq_len,
                                                .heads = c.heads,
                                                .head_dim = c.head_dim,
                                                .q_layout = fused,
                                                .k_layout = fused,
                                                .v_layout = fused,
                                                .out_layout = packed,
                                                .dout_layout = packed,
                                                .dq_layout = fused,
                                                .dk_layout = fused,
                                                .dv_layout = fused,
                                                .scale = 0.125F,
                                                .dtype = c.dtype});
  });
}

}  // namespace train::bench
