#include <cmath>
#include <limits>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cpu.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_forward_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/attention/attention_blocks-inl.hpp"
#include "kernels/simd-inl.hpp"

#ifndef TRAIN_KERNELS_ATTENTION_FORWARD_SCRATCH
#define TRAIN_KERNELS_ATTENTION_FORWARD_SCRATCH
namespace train::kernels::cpu {

/// One thread's scratch.
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

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Turns `valid` scores into exp(scale * (score - largest)), the rest of the row into zeros.
/// Returns the sum; *largest_scaled is scale * largest.
HWY_INLINE float exponentiate_scores(float* scores, std::int64_t valid, std::int64_t padded,
                                     float scale, float* largest_scaled) {
  const Floats d;
  const FloatVec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  FloatVec largest = lowest;
  each_vector(0, valid, [&](std::int64_t i, auto part) {
    const FloatVec scaled = hn::Mul(hn::Set(d, scale), load(d, scores + i, part));
    store(scaled, d, scores + i, part);
    largest = hn::Max(largest, counted_or(scaled, lowest, d, part));
  });
  *largest_scaled = max_lanes(d, largest);
  const FloatVec shift = hn::Set(d, *largest_scaled);
  FloatVec sum = hn::Zero(d);
  each_vector(0, valid, [&](std::int64_t i, auto part) {
    const FloatVec e = exp_of_negative(d, hn::Sub(load(d, scores + i, part), shift));
    sum = hn::Add(sum, counted_or(e, hn::Zero(d), d, part));
    store(e, d, scores + i, part);
  });
  std::fill(scores + valid, scores + padded, 0.0F);
  return sum_lanes(d, sum);
}

/// Query rows [first, first + rows) of one head: scores against every key up to the last of them.
HWY_INLINE void forward_block(const AttentionForwardParams& p, const AttentionSizes& s,
                              const AttentionForwardScratch& scratch, const float* q, float* out,
                              float* lse, std::int64_t first, std::int64_t rows) {
  const std::int64_t keys = first + rows;
  const std::int64_t padded_keys = divide_up(keys, AttentionSizes::vector) * AttentionSizes::vector;
  multiply_block({.a = q + first * p.q_layout.outer_stride,
                  .a_row = p.q_layout.outer_stride,
                  .a_column = 1,
                  .b = scratch.k_transposed,
                  .b_row = s.padded_len,
                  .c = scratch.scores,
                  .c_row = s.padded_len,
                  .m = rows,
                  .n = padded_keys,
                  .k = s.head_dim,
                  .accumulate = false});
  float inverse_sum[AttentionSizes::query_block];
  for (std::int64_t row = 0; row < rows; ++row) {
    float largest = 0.0F;
    const float sum = exponentiate_scores(scratch.scores + row * s.padded_len, first + row + 1,
                                          padded_keys, p.scale, &largest);
    inverse_sum[row] = 1.0F / sum;
    lse[first + row] =
        static_cast<float>(static_cast<double>(largest) + std::log(static_cast<double>(sum)));
  }
  multiply_block({.a = scratch.scores,
                  .a_row = s.padded_len,
                  .a_column = 1,
                  .b = scratch.v,
                  .b_row = s.padded_dim,
                  .c = scratch.out,
                  .c_row = s.padded_dim,
                  .m = rows,
                  .n = s.padded_dim,
                  .k = keys,
                  .accumulate = false});
  const Floats d;
  for (std::int64_t row = 0; row < rows; ++row) {
    float* to = out + (first + row) * p.out_layout.outer_stride;
    const float* from = scratch.out + row * s.padded_dim;
    each_vector(0, s.head_dim, [&](std::int64_t c, auto part) {
      store(hn::Mul(hn::Set(d, inverse_sum[row]), load(d, from + c, part)), d, to + c, part);
    });
  }
}

/// All query rows of head `head` of sequence `sequence`.
void attention_forward_head(const AttentionForwardParams& p, std::int64_t sequence,
                            std::int64_t head, float* memory) {
  const AttentionSizes s = attention_sizes(p.seq_len, p.head_dim);
  const AttentionForwardScratch scratch(memory, s);
  const auto start = [&](const RowLayout& layout) {
    return sequence * p.seq_len * layout.outer_stride + head * layout.inner_stride;
  };
  const float* q = static_cast<const float*>(p.q) + start(p.q_layout);
  const float* k = static_cast<const float*>(p.k) + start(p.k_layout);
  const float* v = static_cast<const float*>(p.v) + start(p.v_layout);
  float* out = static_cast<float*>(p.out) + start(p.out_layout);
  float* lse = p.lse + (sequence * p.heads + head) * p.seq_len;
  pack_transposed(k, p.k_layout.outer_stride, scratch.k_transposed, s.seq_len, s.head_dim,
                  s.padded_len);
  pack_rows(v, p.v_layout.outer_stride, scratch.v, s.seq_len, s.head_dim, s.padded_dim, 1.0F);
  for (std::int64_t first = 0; first < s.seq_len; first += AttentionSizes::query_block) {
    const std::int64_t rows = std::min(AttentionSizes::query_block, s.seq_len - first);
    forward_block(p, s, scratch, q, out, lse, first, rows);
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(attention_forward_head);

namespace {

void run_attention_forward(const AttentionForwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const std::int64_t size = AttentionForwardScratch::size(attention_sizes(p.seq_len, p.head_dim));
  const auto one_head = HWY_DYNAMIC_DISPATCH(attention_forward_head);
  auto* memory = scratch.get<float>(size * threads);
  parallel_for(threads, p.sequences * p.heads, [&](std::int64_t i, int worker) {
    one_head(p, i / p.heads, i % p.heads, memory + worker * size);
  });
}

}  // namespace

void attention_forward(Stream& stream, const AttentionForwardParams& params) {
  check_cpu_params(params);
  stream.enqueue([p = params, threads = stream.threads()] { run_attention_forward(p, threads); });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
