#pragma once

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/gemm/bf16_gemm.hpp"

// Attention with products of bf16 (VDPBF16PS): what differs from that of f32. Queries, keys,
// values, probabilities, and the gradients of outputs and scores are rounded to bf16 where a
// product reads them; softmax, statistics and sums are fp32. An element of a product is one chain
// of fused multiply-adds over the elements of a head, or over the keys or queries of a document in
// their order, as kernels/gemm/bf16_gemm.hpp has it, the last pair filled up with zeros; a result
// of -0 is 0. Pairs of keys and queries begin at even places of the document, so the bits depend
// neither on threads, nor on blocks, nor on where the document lies.
namespace train::kernels::cpu {

/// What the products of attention read.
enum class Operands : std::uint8_t {
  f32,
  bf16,  ///< REQUIRES: has_bf16_products().
};

void attention_forward_with(const AttentionForwardParams& p, int threads, Operands operands);
void attention_backward_with(const AttentionBackwardParams& p, int threads, Operands operands);
void attention_cached_with(const AttentionCachedParams& p, int threads, Operands operands);

/// Which pairs of the inner dimension may be left out because of the causal diagonal: those of
/// zeros in A.
enum class ZeroPairs : std::uint8_t {
  none,
  after,   ///< Of row i of A those from element i + seen + 1 on.
  before,  ///< Those before element i - seen.
};

/// C[m,n] = A B (+ C if accumulate), of pairs along k; B and C have contiguous rows, and n is a
/// multiple of 16.
struct PairProduct {
  const Bf16Pair* a;
  std::int64_t a_row, a_column;
  const Bf16Pair* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  std::int64_t m, n;
  std::int64_t k;  ///< Elements: twice the pairs, or one less.
  bool accumulate = false;
  bool scores = false;  ///< Columns are keys: of row i those after i + seen may be left.
  ZeroPairs zeros = ZeroPairs::none;
  std::int64_t seen = 0;
};
void multiply_pairs(const PairProduct& p);

/// Rows of `cols` elements as rows of pairs, `to_row` apart: whole vectors of them, zeros at the
/// end. `to` may be `from` where to_row in elements is from_row.
void pack_pairs_along(const float* from, std::int64_t from_row, Bf16Pair* to, std::int64_t to_row,
                      std::int64_t rows, std::int64_t cols);
/// Pairs of neighbouring rows: [rows / 2, to_row], zeros from `cols` up to `padded`, a multiple of
/// 16, and beside a last row that is alone. `to` may be `from` with the same distance of rows.
void pack_pairs_across(const float* from, std::int64_t from_row, Bf16Pair* to, std::int64_t to_row,
                       std::int64_t rows, std::int64_t cols, std::int64_t padded);
/// The transpose of pack_pairs_along: [cols / 2, to_row], a column a row, zeros up to a multiple
/// of 16.
void pack_pairs_transposed(const float* from, std::int64_t from_row, Bf16Pair* to,
                           std::int64_t to_row, std::int64_t rows, std::int64_t cols);

/// Rows of a ring of `capacity` slots: row i of `count` is that of slot (slot + i) % capacity.
struct RingRows {
  std::int64_t slot, count, capacity;
};
/// scores[heads, keys.count] of queries against keys [head_dim, capacity].
void cached_scores(const Bf16Pair* queries, std::int64_t query_row, const float* keys,
                   const RingRows& of, std::int64_t head_dim, float* scores, std::int64_t score_row,
                   std::int64_t heads);
/// out[heads, value_dim] = probabilities values, [capacity, value_dim]; `odd`: the first row is the
/// second of its pair.
void cached_outputs(const Bf16Pair* probabilities, std::int64_t row, const float* values,
                    const RingRows& of, bool odd, std::int64_t value_dim, float* out,
                    std::int64_t out_row, std::int64_t heads);

}  // namespace train::kernels::cpu
