// Products of one block of the attention backward pass, for f32 and bf16 operands, compiled once
// per instruction set (no `#pragma once`: Highway includes this file again for each).
#if defined(TRAIN_KERNELS_ATTENTION_BACKWARD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_ATTENTION_BACKWARD_INL
#undef TRAIN_KERNELS_ATTENTION_BACKWARD_INL
#else
#define TRAIN_KERNELS_ATTENTION_BACKWARD_INL
#endif

#include "kernels/attention/attention_blocks-inl.hpp"
#include "kernels/attention/attention_scratch.hpp"
#include "kernels/attention/bf16_blocks.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Keys [from, to) of a block; `from` is a multiple of the vector width.
struct KeyRange {
  std::int64_t from, to;
  std::int64_t padded;  ///< Key count rounded up to whole vectors.
  std::int64_t seen;    ///< Keys visible to the block's first query, less 1.
};

/// Computes scores and the gradients of probabilities.
HWY_INLINE void score_products(const AttentionSizes& s, const AttentionBackwardScratch& t,
                               const QueryBlock& block, const KeyRange& keys) {
  BlockProduct product{.a = t.q + block.first * s.padded_dim,
                       .a_row = s.padded_dim,
                       .a_column = 1,
                       .b = t.k_transposed + block.begin + keys.from,
                       .b_row = s.padded_len,
                       .c = t.scores + keys.from,
                       .c_row = s.padded_len,
                       .m = block.rows,
                       .n = keys.padded,
                       .k = s.head_dim,
                       .accumulate = false,
                       .causal = Causal::scores,
                       .seen = keys.seen};
  multiply_block(product);
  product.a = t.dout + block.first * s.padded_value;
  product.a_row = s.padded_value;
  product.b = t.v_transposed + block.begin + keys.from;
  product.c = t.dscores + keys.from;
  product.k = s.value_dim;
  multiply_block(product);
}

/// score_products() for operands in pairs of bf16.
HWY_INLINE void score_pairs(const AttentionSizes& s, const AttentionBackwardScratch& t,
                            const QueryBlock& block, const KeyRange& keys) {
  PairProduct product{.a = pairs_in(t.q_pairs) + block.first * s.dim_pairs,
                      .a_row = s.dim_pairs,
                      .a_column = 1,
                      .b = pairs_in(t.k_transposed) + block.begin + keys.from,
                      .b_row = s.padded_len,
                      .c = t.scores + keys.from,
                      .c_row = s.padded_len,
                      .m = block.rows,
                      .n = keys.padded,
                      .k = s.head_dim,
                      .scores = true,
                      .seen = keys.seen};
  multiply_pairs(product);
  product.a = pairs_in(t.dout_pairs) + block.first * s.value_pairs;
  product.a_row = s.value_pairs;
  product.b = pairs_in(t.v_transposed) + block.begin + keys.from;
  product.c = t.dscores + keys.from;
  product.k = s.value_dim;
  multiply_pairs(product);
}

/// Adds the block's contributions to dk and dv.
HWY_INLINE void key_products(const AttentionSizes& s, const AttentionBackwardScratch& t,
                             const QueryBlock& block, const KeyRange& keys) {
  BlockProduct product{.a = t.scores + keys.from,
                       .a_row = 1,
                       .a_column = s.padded_len,
                       .b = t.dout + block.first * s.padded_value,
                       .b_row = s.padded_value,
                       .c = t.dv + (block.begin + keys.from) * s.padded_value,
                       .c_row = s.padded_value,
                       .m = keys.to - keys.from,
                       .n = s.padded_value,
                       .k = block.rows,
                       .accumulate = true,
                       .causal = Causal::keys,
                       .seen = keys.seen};
  multiply_block(product);
  product.a = t.dscores + keys.from;
  product.b = t.q + block.first * s.padded_dim;
  product.b_row = s.padded_dim;
  product.c = t.dk + (block.begin + keys.from) * s.padded_dim;
  product.c_row = s.padded_dim;
  product.n = s.padded_dim;
  multiply_block(product);
}

/// key_products() for operands in pairs of bf16. Turns the score rows into pairs: first those of
/// the probabilities, behind them those of the score gradients, which backward_queries() still
/// needs unchanged.
HWY_INLINE void key_pairs(const AttentionSizes& s, const AttentionBackwardScratch& t,
                          const QueryBlock& block, const KeyRange& keys) {
  Bf16Pair* const probabilities = pairs_in(t.scores) + keys.from;
  Bf16Pair* const gradients = probabilities + AttentionSizes::kQueryBlock / 2 * s.padded_len;
  pack_pairs_across(t.scores + keys.from, s.padded_len, probabilities, s.padded_len, block.rows,
                    keys.padded, keys.padded);
  pack_pairs_across(t.dscores + keys.from, s.padded_len, gradients, s.padded_len, block.rows,
                    keys.padded, keys.padded);
  PairProduct product{.a = probabilities,
                      .a_row = 1,
                      .a_column = s.padded_len,
                      .b = pairs_in(t.dout) + block.first / 2 * s.padded_value,
                      .b_row = s.padded_value,
                      .c = t.dv + (block.begin + keys.from) * s.padded_value,
                      .c_row = s.padded_value,
                      .m = keys.to - keys.from,
                      .n = s.padded_value,
                      .k = block.rows,
                      .accumulate = true,
                      .zeros = ZeroPairs::before,
                      .seen = keys.seen};
  multiply_pairs(product);
  product.a = gradients;
  product.b = pairs_in(t.q) + block.first / 2 * s.padded_dim;
  product.b_row = s.padded_dim;
  product.c = t.dk + (block.begin + keys.from) * s.padded_dim;
  product.c_row = s.padded_dim;
  product.n = s.padded_dim;
  multiply_pairs(product);
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
