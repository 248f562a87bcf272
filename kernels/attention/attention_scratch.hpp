#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu_support.hpp"
#include "kernels/gemm/bf16_gemm.hpp"

// Scratch memory of one thread of attention on the CPU.
namespace train::kernels::cpu {

/// Sizes shared by both attention passes. Scratch rows are padded to the vector width of the widest
/// instruction set, so that all have one layout. Rows as long as the sequence take an odd number of
/// cache lines: at a power of two all rows of a tile map to the same few cache sets (measured at
/// 1024: a quarter of the speed).
struct AttentionSizes {
  static constexpr std::int64_t kQueryBlock = 64;  ///< Query rows processed at a time.
  static constexpr std::int64_t kVector = 16;

  std::int64_t length;  ///< Tokens of the document.
  std::int64_t head_dim, value_dim;
  std::int64_t padded_len, padded_dim, padded_value;
  std::int64_t dim_pairs, value_pairs;  ///< row_of_pairs() of the head sizes.
};

/// Bf16 pairs per row of `count` elements, rounded up to whole vectors.
[[nodiscard]] constexpr std::int64_t row_of_pairs(std::int64_t count) {
  return divide_up(count, 2 * AttentionSizes::kVector) * AttentionSizes::kVector;
}

[[nodiscard]] constexpr AttentionSizes attention_sizes(std::int64_t length, std::int64_t head_dim,
                                                       std::int64_t value_dim) {
  constexpr std::int64_t vector = AttentionSizes::kVector;
  return {.length = length,
          .head_dim = head_dim,
          .value_dim = value_dim,
          .padded_len = divide_up(length, 2 * vector) * 2 * vector + vector,
          .padded_dim = divide_up(head_dim, vector) * vector,
          .padded_value = divide_up(value_dim, vector) * vector,
          .dim_pairs = row_of_pairs(head_dim),
          .value_pairs = row_of_pairs(value_dim)};
}

/// Document: tokens [first, first + length) of sequence `sequence`, which attend to each other.
struct Document {
  std::int64_t sequence, first, length;
};

/// One thread's scratch of the forward pass.
struct AttentionForwardScratch {
  AttentionForwardScratch(float* memory, const AttentionSizes& s)
      : k_transposed(memory),
        v(k_transposed + s.head_dim * s.padded_len),
        scores(v + s.length * s.padded_value),
        out(scores + AttentionSizes::kQueryBlock * s.padded_len),
        q_pairs(out + AttentionSizes::kQueryBlock * s.padded_value) {}

  static std::int64_t size(const AttentionSizes& s) {
    return (s.head_dim + AttentionSizes::kQueryBlock) * s.padded_len +
           (s.length + AttentionSizes::kQueryBlock) * s.padded_value +
           AttentionSizes::kQueryBlock * s.dim_pairs;
  }

  // With bf16 operands keys and values are pairs in half as many rows; the probabilities end up as
  // pairs in half of each score row.
  float* k_transposed;  // [head_dim, padded_len]
  float* v;             // [length, padded_value]
  float* scores;        // [kQueryBlock, padded_len]
  float* out;           // [kQueryBlock, padded_value]
  float* q_pairs;       // [kQueryBlock, dim_pairs]
};

/// Views float scratch as bf16 pairs.
[[nodiscard]] inline Bf16Pair* pairs_in(float* memory) {
  return reinterpret_cast<Bf16Pair*>(memory);
}

/// First key that query `row` sees.
[[nodiscard]] constexpr std::int64_t first_key(std::int64_t row, std::int64_t window) {
  return window == 0 || row < window ? 0 : row + 1 - window;
}

/// The window by which keys are read: with a prefix all are, and those between it and the row's
/// window are hidden.
[[nodiscard]] constexpr std::int64_t read_window(std::int64_t window, std::int64_t prefix) {
  return prefix == 0 ? window : 0;
}

/// Keys [begin, end) that query `row` does not see between the prefix and its window.
struct HiddenKeys {
  std::int64_t begin, end;
};
[[nodiscard]] constexpr HiddenKeys hidden_keys(std::int64_t row, std::int64_t window,
                                               std::int64_t prefix) {
  return {prefix, prefix == 0 ? 0 : std::max(prefix, first_key(row, window))};
}

/// First key that the block of query rows from `row` on reads, rounded down to a whole vector.
[[nodiscard]] constexpr std::int64_t first_key_of_block(std::int64_t row, std::int64_t window) {
  return first_key(row, window) / AttentionSizes::kVector * AttentionSizes::kVector;
}

/// Block of query rows of a head, with the keys that any of them sees, from a whole vector on.
struct QueryBlock {
  std::int64_t first, rows;
  std::int64_t begin, keys;
};

[[nodiscard]] constexpr QueryBlock query_block_at(const AttentionSizes& s, std::int64_t first,
                                                  std::int64_t window) {
  const std::int64_t rows = std::min(AttentionSizes::kQueryBlock, s.length - first);
  const std::int64_t begin = first_key_of_block(first, window);
  return {.first = first, .rows = rows, .begin = begin, .keys = first + rows - begin};
}

/// Keys rounded up to whole vectors.
[[nodiscard]] constexpr std::int64_t padded_keys(std::int64_t keys) {
  return divide_up(keys, AttentionSizes::kVector) * AttentionSizes::kVector;
}

/// Floats of a score row over cached keys; each of its two segments may write up to one vector too
/// many.
[[nodiscard]] constexpr std::int64_t cached_score_row(std::int64_t keys) {
  return padded_keys(keys) + AttentionSizes::kVector;
}

/// One query head's tensors at a document's first row, with its group's keys and values.
struct AttentionHead {
  const float *q, *k, *v, *out, *dout, *lse;
  float *delta, *dq;
};

/// Share of the block of query rows that begins at `first`.
struct BlockPart {
  std::int64_t first;
  std::int64_t part, parts;
};

/// Number of tasks that fill the scratch of the backward pass.
inline constexpr std::int64_t kBackwardPacks = 5;
/// Number of those tasks, the first ones, that read only keys and values.
inline constexpr std::int64_t kKeyPacks = 3;

/// One thread's scratch of the backward pass.
struct AttentionBackwardScratch {
  AttentionBackwardScratch(float* memory, const AttentionSizes& s)
      : k_transposed(memory),
        v_transposed(k_transposed + s.head_dim * s.padded_len),
        scores(v_transposed + s.value_dim * s.padded_len),
        dscores(scores + AttentionSizes::kQueryBlock * s.padded_len),
        q(dscores + AttentionSizes::kQueryBlock * s.padded_len),
        k(q + s.length * s.padded_dim),
        dk(k + s.length * s.padded_dim),
        dout(dk + s.length * s.padded_dim),
        dv(dout + s.length * s.padded_value),
        dq(dv + s.length * s.padded_value),
        q_pairs(dq + AttentionSizes::kQueryBlock * s.padded_dim),
        dout_pairs(q_pairs + s.length * s.dim_pairs) {}

  static std::int64_t size(const AttentionSizes& s) {
    return (s.head_dim + s.value_dim + 2 * AttentionSizes::kQueryBlock) * s.padded_len +
           (3 * s.length + AttentionSizes::kQueryBlock) * s.padded_dim +
           2 * s.length * s.padded_value + s.length * (s.dim_pairs + s.value_pairs);
  }

  float *k_transposed, *v_transposed;  // [head_dim, padded_len], [value_dim, padded_len]
  float *scores, *dscores;             // [kQueryBlock, padded_len]
  float *q, *k, *dk;                   // [length, padded_dim]; q is already scaled.
  float *dout, *dv;                    // [length, padded_value]
  float* dq;                           // [kQueryBlock, padded_dim]
  // With bf16 operands: pairs along a row. Keys, values, q and dout above are then pairs across
  // rows, half as many rows; q is not scaled, the score gradients are.
  float *q_pairs, *dout_pairs;  // [length, dim_pairs], [length, value_pairs]
};

}  // namespace train::kernels::cpu
