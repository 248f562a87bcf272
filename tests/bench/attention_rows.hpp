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

  /// Half of each lies below the diagonal.
  static constexpr double kForwardProducts = 2.0;
  static constexpr double kBackwardProducts = 5.0;
  [[nodiscard]] double product_flop() const {
    return static_cast<double>(sequences * heads * seq_len * seq_len * head_dim);
  }
  [[nodiscard]] std::string shape() const {
    return fmt::format("{} x T {}, {} x {}", sequences, seq_len, heads, head_dim);
  }
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
  const double product = c.product_flop();
  bench.row("attention forward  " + c.shape(), c.kForwardProducts * product, 0,
            [&](kernels::Stream& stream) {
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
  bench.row("attention backward " + c.shape(), c.kBackwardProducts * product, 0,
            [&](kernels::Stream& stream) {
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
