#include "kernels/attention/attention.hpp"

#include "base/math/fixed_math.hpp"
#include "kernels/attention/attention_division.hpp"
#include "kernels/attention/attention_scratch.hpp"
#include "kernels/attention/bf16_blocks.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_forward_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/attention/attention_blocks-inl.hpp"
#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Inputs and outputs of the forward pass for one head of a document.
struct ForwardHead {
  const float *q, *k, *v;
  float *out, *lse;
  const float* sink;  ///< nullptr: none.
};

HWY_INLINE ForwardHead forward_head(const AttentionForwardParams& p, const Document& document,
                                    std::int64_t head) {
  const auto start = [&](const RowLayout& layout, std::int64_t inner) {
    return (document.sequence * p.seq_len + document.first) * layout.outer_stride +
           inner * layout.inner_stride;
  };
  const std::int64_t kv_head = head / p.group();
  return {.q = static_cast<const float*>(p.q) + start(p.q_layout, head),
          .k = static_cast<const float*>(p.k) + start(p.k_layout, kv_head),
          .v = static_cast<const float*>(p.v) + start(p.v_layout, kv_head),
          .out = static_cast<float*>(p.out) + start(p.out_layout, head),
          .lse = p.lse + (document.sequence * p.heads + head) * p.seq_len + document.first,
          .sink = p.sinks == nullptr ? nullptr : p.sinks + head};
}

/// Computes the scores of the block's queries and keys.
HWY_INLINE void block_scores(const AttentionForwardParams& p, const AttentionSizes& s,
                             const AttentionForwardScratch& scratch, const float* q,
                             const QueryBlock& block, Operands operands) {
  if (operands == Operands::bf16) {
    pack_pairs_along(q, p.q_layout.outer_stride, pairs_in(scratch.q_pairs), s.dim_pairs, block.rows,
                     s.head_dim);
    multiply_pairs({.a = pairs_in(scratch.q_pairs),
                    .a_row = s.dim_pairs,
                    .a_column = 1,
                    .b = pairs_in(scratch.k_transposed) + block.begin,
                    .b_row = s.padded_len,
                    .c = scratch.scores,
                    .c_row = s.padded_len,
                    .m = block.rows,
                    .n = padded_keys(block.keys),
                    .k = s.head_dim,
                    .scores = true,
                    .seen = block.first - block.begin});
    return;
  }
  multiply_block({.a = q,
                  .a_row = p.q_layout.outer_stride,
                  .a_column = 1,
                  .b = scratch.k_transposed + block.begin,
                  .b_row = s.padded_len,
                  .c = scratch.scores,
                  .c_row = s.padded_len,
                  .m = block.rows,
                  .n = padded_keys(block.keys),
                  .k = s.head_dim,
                  .accumulate = false,
                  .causal = Causal::scores,
                  .seen = block.first - block.begin});
}

/// Sums the block's values, weighted by the exponentials that have replaced the scores.
HWY_INLINE void block_sums(const AttentionSizes& s, const AttentionForwardScratch& scratch,
                           const QueryBlock& block, Operands operands) {
  if (operands == Operands::bf16) {
    Bf16Pair* const exponentials = pairs_in(scratch.scores);
    pack_pairs_along(scratch.scores, s.padded_len, exponentials, s.padded_len, block.rows,
                     padded_keys(block.keys));
    multiply_pairs({.a = exponentials,
                    .a_row = s.padded_len,
                    .a_column = 1,
                    .b = pairs_in(scratch.v) + block.begin / 2 * s.padded_value,
                    .b_row = s.padded_value,
                    .c = scratch.out,
                    .c_row = s.padded_value,
                    .m = block.rows,
                    .n = s.padded_value,
                    .k = block.keys,
                    .zeros = ZeroPairs::after,
                    .seen = block.first - block.begin});
    return;
  }
  multiply_block({.a = scratch.scores,
                  .a_row = s.padded_len,
                  .a_column = 1,
                  .b = scratch.v + block.begin * s.padded_value,
                  .b_row = s.padded_value,
                  .c = scratch.out,
                  .c_row = s.padded_value,
                  .m = block.rows,
                  .n = s.padded_value,
                  .k = block.keys,
                  .accumulate = false,
                  .causal = Causal::queries,
                  .seen = block.first - block.begin});
}

/// Computes one block of query rows of a head.
HWY_INLINE void forward_block(const AttentionForwardParams& p, const AttentionSizes& s,
                              const AttentionForwardScratch& scratch, const ForwardHead& of,
                              std::int64_t first, Operands operands) {
  const std::int64_t window = read_window(p.window, p.prefix);
  const QueryBlock block = query_block_at(s, first, window);
  block_scores(p, s, scratch, of.q + first * p.q_layout.outer_stride, block, operands);
  float factors[AttentionSizes::kQueryBlock];
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const ScoreRow scores{.scores = scratch.scores + row * s.padded_len,
                          .begin = first_key(first + row, window) - block.begin,
                          .end = first + row + 1 - block.begin,
                          .padded = padded_keys(block.keys)};
    hide_scores(hidden_keys(first + row, p.window, p.prefix), block.begin, scores);
    float largest = 0.0F;
    const float sum = exponentiate_scores(scores, p.scale, p.softcap, &largest);
    const RowSoftmax softmax = divided_by_sum(largest, sum, of.sink);
    factors[row] = softmax.factor;
    of.lse[first + row] = static_cast<float>(static_cast<double>(softmax.largest) +
                                             fixed::log(static_cast<double>(softmax.sum)));
  }
  block_sums(s, scratch, block, operands);
  const Floats d;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    float* to = of.out + (first + row) * p.out_layout.outer_stride;
    const float* from = scratch.out + row * s.padded_value;
    each_vector(0, s.value_dim, [&](std::int64_t c, auto part) {
      store(hn::Mul(hn::Set(d, factors[row]), load(d, from + c, part)), d, to + c, part);
    });
  }
}

/// Packs keys and values of head `head` of one document into the scratch.
void attention_forward_pack(const AttentionForwardParams& p, const Document& document,
                            std::int64_t head, float* memory, Operands operands) {
  const AttentionSizes s = attention_sizes(document.length, p.head_dim, p.values());
  const AttentionForwardScratch scratch(memory, s);
  const ForwardHead of = forward_head(p, document, head);
  if (operands == Operands::bf16) {
    pack_pairs_transposed(of.k, p.k_layout.outer_stride, pairs_in(scratch.k_transposed),
                          s.padded_len, s.length, s.head_dim);
    pack_pairs_across(of.v, p.v_layout.outer_stride, pairs_in(scratch.v), s.padded_value, s.length,
                      s.value_dim, s.padded_value);
    return;
  }
  pack_transposed(of.k, p.k_layout.outer_stride, scratch.k_transposed, s.length, s.head_dim,
                  s.padded_len);
  pack_rows(of.v, p.v_layout.outer_stride, scratch.v, s.length, s.value_dim, s.padded_value, 1.0F);
}

/// Computes the block of query rows from `first` on, with keys and values packed in `packed` and
/// other scratch in `memory`, which may be the same.
void attention_forward_block(const AttentionForwardParams& p, const Document& document,
                             std::int64_t head, std::int64_t first, float* packed, float* memory,
                             Operands operands) {
  const AttentionSizes s = attention_sizes(document.length, p.head_dim, p.values());
  const AttentionForwardScratch ready(packed, s);
  AttentionForwardScratch scratch(memory, s);
  scratch.k_transposed = ready.k_transposed;
  scratch.v = ready.v;
  forward_block(p, s, scratch, forward_head(p, document, head), first, operands);
}

/// Computes all query rows of head `head` of one document, whose keys and values are packed.
void attention_forward_head(const AttentionForwardParams& p, const Document& document,
                            std::int64_t head, float* memory, Operands operands) {
  for (std::int64_t first = 0; first < document.length; first += AttentionSizes::kQueryBlock) {
    attention_forward_block(p, document, head, first, memory, memory, operands);
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(attention_forward_pack);
HWY_EXPORT(attention_forward_block);
HWY_EXPORT(attention_forward_head);

void attention_forward_with(const AttentionForwardParams& p, int threads, Operands operands) {
  static thread_local Scratch scratch;
  const std::vector<Document> documents = documents_of(p);
  const std::int64_t size =
      AttentionForwardScratch::size(attention_sizes(longest(documents), p.head_dim, p.values()));
  const auto one_head = HWY_DYNAMIC_DISPATCH(attention_forward_head);
  auto* memory = scratch.get<float>(size * threads);
  const auto count = static_cast<std::int64_t>(documents.size()) * p.heads;
  const std::int64_t shared = heads_to_share(count, threads);
  const auto pack = HWY_DYNAMIC_DISPATCH(attention_forward_pack);
  PackedKeys packed(threads);
  const auto pack_once = [&](std::int64_t i, int worker) -> const Document& {
    const auto index = static_cast<std::size_t>(i / p.heads);
    const std::int64_t head = i % p.heads;
    if (!packed.has(worker, index, head / p.group())) {
      pack(p, documents[index], head, memory + worker * size, operands);
    }
    return documents[index];
  };
  parallel_shares(threads, count - shared, [&](std::int64_t i, int worker) {
    one_head(p, pack_once(i, worker), i % p.heads, memory + worker * size, operands);
  });
  const auto one_block = HWY_DYNAMIC_DISPATCH(attention_forward_block);
  for (std::int64_t i = count - shared; i < count; ++i) {
    const Document& document = pack_once(i, 0);
    const std::int64_t blocks = divide_up(document.length, AttentionSizes::kQueryBlock);
    parallel_for(threads, blocks, [&](std::int64_t done, int worker) {  // Longest blocks first.
      one_block(p, document, i % p.heads, (blocks - 1 - done) * AttentionSizes::kQueryBlock, memory,
                memory + worker * size, operands);
    });
  }
}

void attention_forward(const AttentionForwardParams& p, int threads) {
  attention_forward_with(p, threads, Operands::f32);
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
