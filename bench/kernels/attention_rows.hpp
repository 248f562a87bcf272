#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/attention/attention.hpp"
#include "kernels/backend.hpp"

namespace train::bench {

/// Attention on sequences with fused queries, keys and values in `qkv`, and their gradients in
/// `dqkv`; outputs are packed.
struct AttentionCase {
  std::int64_t sequences, seq_len, heads, head_dim;
  kernels::DType dtype;
  std::int64_t kv_heads = 0;   ///< Heads of keys and values; 0: equal to heads.
  std::int64_t window = 0;     ///< Keys that a query sees; 0: all before it.
  std::int64_t value_dim = 0;  ///< Head size of values and outputs; 0: head_dim.

  /// Half of each product lies below the diagonal.
  static constexpr double kForwardProducts = 2.0;
  static constexpr double kBackwardProducts = 5.0;
  [[nodiscard]] double product_flop() const {
    return static_cast<double>(sequences * heads * head_dim) * 2.0 * keys_seen();
  }
  [[nodiscard]] std::string shape() const {
    return fmt::format("{} x T {}, {}{} x {}{}{}", sequences, seq_len, heads,
                       kv_heads == 0 ? "" : fmt::format("/{}", kv_heads), head_dim,
                       value_dim == 0 ? "" : fmt::format("/{}", value_dim),
                       window == 0 ? "" : fmt::format(", window {}", window));
  }
  [[nodiscard]] std::int64_t width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }
  [[nodiscard]] std::int64_t out_width() const { return heads * values(); }
  [[nodiscard]] std::int64_t key_width() const { return keys() * head_dim; }
  /// Elements of a token's queries, keys and values.
  [[nodiscard]] std::int64_t fused_width() const {
    return width() + keys() * (head_dim + values());
  }
  /// Offset of a token's keys, and of its values.
  [[nodiscard]] std::size_t key_bytes() const { return bytes_of(width()); }
  [[nodiscard]] std::size_t value_bytes() const { return bytes_of(width() + key_width()); }
  [[nodiscard]] std::int64_t tokens() const { return sequences * seq_len; }

 private:
  [[nodiscard]] std::int64_t keys() const { return kv_heads == 0 ? heads : kv_heads; }
  [[nodiscard]] std::size_t bytes_of(std::int64_t count) const {
    return static_cast<std::size_t>(count) * kernels::size_of(dtype);
  }
  /// Keys seen by all queries of a sequence; without a window half of all pairs.
  [[nodiscard]] double keys_seen() const {
    const auto length = static_cast<double>(seq_len);
    if (window == 0 || window >= seq_len) {
      return 0.5 * length * length;
    }
    const auto most = static_cast<double>(window);
    return most * length - 0.5 * most * most;
  }
};

/// Memory of an AttentionCase, on the device of the benchmark's kernels.
struct AttentionMemory {
  const void* qkv;
  void* out;
  const void* dout;
  void* dqkv;
  float* lse;
  float* delta;
};

/// Enqueues one pass. Queries, keys and values of a token are contiguous.
inline void attention_forward(kernels::Stream& stream, const kernels::KernelTable& kernels,
                              const AttentionCase& c, const AttentionMemory& memory) {
  const kernels::RowLayout fused{c.fused_width(), c.head_dim};
  const kernels::RowLayout values{c.fused_width(), c.values()};
  const auto* qkv = static_cast<const std::byte*>(memory.qkv);
  kernels.attention_forward(stream, {.q = qkv,
                                     .k = qkv + c.key_bytes(),
                                     .v = qkv + c.value_bytes(),
                                     .out = memory.out,
                                     .lse = memory.lse,
                                     .sequences = c.sequences,
                                     .seq_len = c.seq_len,
                                     .heads = c.heads,
                                     .head_dim = c.head_dim,
                                     .value_dim = c.value_dim,
                                     .kv_heads = c.kv_heads,
                                     .window = c.window,
                                     .q_layout = fused,
                                     .k_layout = fused,
                                     .v_layout = values,
                                     .out_layout = {c.out_width(), c.values()},
                                     .scale = 0.125F,
                                     .dtype = c.dtype});
}

inline void attention_backward(kernels::Stream& stream, const kernels::KernelTable& kernels,
                               const AttentionCase& c, const AttentionMemory& memory) {
  const kernels::RowLayout fused{c.fused_width(), c.head_dim};
  const kernels::RowLayout values{c.fused_width(), c.values()};
  const kernels::RowLayout packed{c.out_width(), c.values()};
  const auto* qkv = static_cast<const std::byte*>(memory.qkv);
  auto* dqkv = static_cast<std::byte*>(memory.dqkv);
  kernels.attention_backward(stream, {.q = qkv,
                                      .k = qkv + c.key_bytes(),
                                      .v = qkv + c.value_bytes(),
                                      .out = memory.out,
                                      .dout = memory.dout,
                                      .lse = memory.lse,
                                      .delta = memory.delta,
                                      .dq = dqkv,
                                      .dk = dqkv + c.key_bytes(),
                                      .dv = dqkv + c.value_bytes(),
                                      .sequences = c.sequences,
                                      .seq_len = c.seq_len,
                                      .heads = c.heads,
                                      .head_dim = c.head_dim,
                                      .value_dim = c.value_dim,
                                      .kv_heads = c.kv_heads,
                                      .window = c.window,
                                      .q_layout = fused,
                                      .k_layout = fused,
                                      .v_layout = values,
                                      .out_layout = packed,
                                      .dout_layout = packed,
                                      .dq_layout = fused,
                                      .dk_layout = fused,
                                      .dv_layout = values,
                                      .scale = 0.125F,
                                      .dtype = c.dtype});
}

/// Times of the two passes, in seconds.
struct AttentionTimes {
  double forward = 0.0;
  double backward = 0.0;
};

/// Rows of both passes. `Bench`: has kernels(), and row(name, flop, bytes, work), which returns
/// seconds.
template <class Bench>
AttentionTimes attention_rows(Bench& bench, const AttentionCase& c, const AttentionMemory& memory) {
  const double product = c.product_flop();
  AttentionTimes times;
  times.forward = bench.row(
      "attention forward  " + c.shape(), c.kForwardProducts * product, 0,
      [&](kernels::Stream& stream) { attention_forward(stream, bench.kernels(), c, memory); });
  times.backward = bench.row(
      "attention backward " + c.shape(), c.kBackwardProducts * product, 0,
      [&](kernels::Stream& stream) { attention_backward(stream, bench.kernels(), c, memory); });
  return times;
}

}  // namespace train::bench
