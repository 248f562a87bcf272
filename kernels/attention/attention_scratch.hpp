#pragma once

#include <cstdint>

#include "kernels/cpu_support.hpp"

// What one thread of attention on the CPU works on.
namespace train::kernels::cpu {

/// Sizes that both passes of attention share. Scratch rows are padded to whole vectors of the
/// widest instruction set, so that the layout is the same for all. Rows as long as the sequence
/// take an odd number of cache lines: at a power of two all rows of a tile would fall into the same
/// few sets of the cache (measured at 1024: a quarter of the speed).
struct AttentionSizes {
  static constexpr std::int64_t query_block = 64;  ///< Query rows whose scores exist at a time.
  static constexpr std::int64_t vector = 16;

  std::int64_t seq_len, head_dim;
  std::int64_t padded_len, padded_dim;
};

[[nodiscard]] constexpr AttentionSizes attention_sizes(std::int64_t seq_len,
                                                       std::int64_t head_dim) {
  constexpr std::int64_t vector = AttentionSizes::vector;
  return {.seq_len = seq_len,
          .head_dim = head_dim,
          .padded_len = divide_up(seq_len, 2 * vector) * 2 * vector + vector,
          .padded_dim = divide_up(head_dim, vector) * vector};
}

/// One thread's scratch of the forward pass.
struct AttentionForwardScratch {
  AttentionForwardScratch(float* memory, const AttentionSizes& s)
      : k_transposed(memory),
        v(k_transposed + s.head_dim * s.padded_len),
        scores(v + s.seq_len * s.padded_dim),
        out(scores + AttentionSizes::query_block * s.padded_len) {}

  static std::int64_t size(const AttentionSizes& s) {
    return (s.head_dim + AttentionSizes::query_block) * s.padded_len +
           (s.seq_len + AttentionSizes::query_block) * s.padded_dim;
  }

  float* k_transposed;  // [head_dim, padded_len]
  float* v;             // [seq_len, padded_dim]
  float* scores;        // [query_block, padded_len]
  float* out;           // [query_block, padded_dim]
};

/// The first key that query `row` sees.
[[nodiscard]] constexpr std::int64_t first_key(std::int64_t row, std::int64_t window) {
  return window == 0 || row < window ? 0 : row + 1 - window;
}

/// The first key that a block of query rows from `row` on reads: at a whole vector.
[[nodiscard]] constexpr std::int64_t first_key_of_block(std::int64_t row, std::int64_t window) {
  return first_key(row, window) / AttentionSizes::vector * AttentionSizes::vector;
}

/// One query head's tensors, at their first row, and its group's keys and values.
struct AttentionHead {
  const float *q, *k, *v, *out, *dout, *lse;
  float *delta, *dq;
};

/// One thread's scratch of the backward pass.
struct AttentionBackwardScratch {
  AttentionBackwardScratch(float* memory, const AttentionSizes& s)
      : k_transposed(memory),
        v_transposed(k_transposed + s.head_dim * s.padded_len),
        scores(v_transposed + s.head_dim * s.padded_len),
        dscores(scores + AttentionSizes::query_block * s.padded_len),
        q(dscores + AttentionSizes::query_block * s.padded_len),
        k(q + s.seq_len * s.padded_dim),
        dout(k + s.seq_len * s.padded_dim),
        dk(dout + s.seq_len * s.padded_dim),
        dv(dk + s.seq_len * s.padded_dim),
        dq(dv + s.seq_len * s.padded_dim) {}

  static std::int64_t size(const AttentionSizes& s) {
    return 2 * (s.head_dim + AttentionSizes::query_block) * s.padded_len +
           (5 * s.seq_len + AttentionSizes::query_block) * s.padded_dim;
  }

  float *k_transposed, *v_transposed;  // [head_dim, padded_len]
  float *scores, *dscores;             // [query_block, padded_len]
  float *q, *k, *dout, *dk, *dv;       // [seq_len, padded_dim]; q is already scaled.
  float* dq;                           // [query_block, padded_dim]
};

}  // namespace train::kernels::cpu
