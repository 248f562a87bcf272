#pragma once

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/gemm/bf16_gemm.hpp"

// Attention with bf16 products (VDPBF16PS): the differences from f32. Queries, keys, values,
// probabilities, and the gradients of outputs and scores are rounded to bf16 where a product reads
// them; softmax, statistics and sums are fp32. An element of a product is one chain of fused
// multiply-adds over the elements of a head, or over a document's keys or queries in order, as in
// kernels/gemm/bf16_gemm.hpp; the last pair is filled up with zeros and a result of -0 is 0. The
// bits depend on neither threads nor blocks, nor on the place of the document or of the first pair.
namespace train::kernels::cpu {

/// Operand type of attention's products.
enum class Operands : std::uint8_t {
  f32,
  bf16,  ///< REQUIRES: has_bf16_products().
};

void attention_forward_with(const AttentionForwardParams& p, int threads, Operands operands);
void attention_backward_with(const AttentionBackwardParams& p, int threads, Operands operands);
void attention_cached_with(const AttentionCachedParams& p, int threads, Operands operands);
void latent_cached_with(const LatentCachedParams& p, int threads, Operands operands);

/// Pairs of the inner dimension that the causal mask makes zero in A and that may be skipped.
enum class ZeroPairs : std::uint8_t {
  none,
  after,   ///< In row i of A those from element i + seen + 1 on.
  before,  ///< In row i of A those before element i - seen.
};

/// C[m,n] = A B (+ C if accumulate), operands in pairs along k. Rows of B and C are contiguous; n
/// is a multiple of 16.
struct PairProduct {
  const Bf16Pair* a;
  std::int64_t a_row, a_column;
  const Bf16Pair* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  std::int64_t m, n;
  std::int64_t k;  ///< In elements: twice the pairs, or one less.
  bool accumulate = false;
  bool scores = false;  ///< Columns are keys: in row i those after i + seen may be skipped.
  ZeroPairs zeros = ZeroPairs::none;
  std::int64_t seen = 0;
};
void multiply_pairs(const PairProduct& p);

/// Converts rows of `cols` elements to rows of pairs, `to_row` apart, filled up to whole vectors
/// with zeros. `to` may be `from` if both rows have the same distance in bytes.
void pack_pairs_along(const float* from, std::int64_t from_row, Bf16Pair* to, std::int64_t to_row,
                      std::int64_t rows, std::int64_t cols);
/// Makes pairs of neighbouring rows: [rows / 2, to_row], zeros from `cols` up to `padded` (a
/// multiple of 16) and beside an odd last row. `to` may be `from` with equal row distances.
void pack_pairs_across(const float* from, std::int64_t from_row, Bf16Pair* to, std::int64_t to_row,
                       std::int64_t rows, std::int64_t cols, std::int64_t padded);
/// Transpose of pack_pairs_along(): [cols / 2, to_row], one column per row, zero-filled to a
/// multiple of 16.
void pack_pairs_transposed(const float* from, std::int64_t from_row, Bf16Pair* to,
                           std::int64_t to_row, std::int64_t rows, std::int64_t cols);

/// Rows of a ring of `capacity` slots: row i of `count` lies in slot (slot + i) % capacity.
struct RingRows {
  std::int64_t slot, count, capacity;
};
/// Computes scores[heads, keys.count] of queries and keys [head_dim, capacity].
void cached_scores(const Bf16Pair* queries, std::int64_t query_row, const float* keys,
                   const RingRows& of, std::int64_t head_dim, float* scores, std::int64_t score_row,
                   std::int64_t heads);
/// Computes out[heads, value_dim] = probabilities values, with values [capacity, value_dim].
void cached_outputs(const Bf16Pair* probabilities, std::int64_t row, const float* values,
                    const RingRows& of, std::int64_t value_dim, float* out, std::int64_t out_row,
                    std::int64_t heads);

}  // namespace train::kernels::cpu
