#include "kernels/attention/attention.hpp"

#include <cmath>
#include <limits>

#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/attention/attention_blocks-inl.hpp"
#include "kernels/simd-inl.hpp"

#ifndef TRAIN_KERNELS_ATTENTION_SCRATCH
#define TRAIN_KERNELS_ATTENTION_SCRATCH
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

/// One head's tensors, at their first row.
struct AttentionHead {
  const float *q, *k, *v, *out, *dout, *lse;
  float *delta, *dq, *dk, *dv;
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

/// delta = sum over the head of dout * out, the softmax gradient's row term.
HWY_INLINE float delta_row(const float* dout, const float* out, std::int64_t head_dim) {
  const Floats d;
  FloatVec sum = hn::Zero(d);
  each_vector(0, head_dim, [&](std::int64_t c, auto part) {
    sum = hn::MulAdd(load(d, dout + c, part), load(d, out + c, part), sum);
  });
  return sum_lanes(d, sum);
}

/// scores -> probabilities exp(score - lse); dscores -> p * (dscores - delta); zeros past `valid`.
HWY_INLINE void softmax_backward_row(float* scores, float* dscores, std::int64_t valid,
                                     std::int64_t padded, float lse, float delta) {
  const Floats d;
  each_vector(0, valid, [&](std::int64_t i, auto part) {
    const FloatVec p = exp_of_negative(d, hn::Sub(load(d, scores + i, part), hn::Set(d, lse)));
    const FloatVec dp = load(d, dscores + i, part);
    store(p, d, scores + i, part);
    store(hn::Mul(p, hn::Sub(dp, hn::Set(d, delta))), d, dscores + i, part);
  });
  std::fill(scores + valid, scores + padded, 0.0F);
  std::fill(dscores + valid, dscores + padded, 0.0F);
}

/// Query rows [first, first + rows): their probabilities again, then their share of all gradients.
HWY_INLINE void backward_block(const AttentionBackwardParams& p, const AttentionSizes& s,
                               const AttentionBackwardScratch& t, const AttentionHead& head,
                               std::int64_t first, std::int64_t rows) {
  const std::int64_t keys = first + rows;
  const std::int64_t padded_keys = divide_up(keys, AttentionSizes::vector) * AttentionSizes::vector;
  const float* q = t.q + first * s.padded_dim;
  const float* dout = t.dout + first * s.padded_dim;
  BlockProduct scores{.a = q,
                      .a_row = s.padded_dim,
                      .a_column = 1,
                      .b = t.k_transposed,
                      .b_row = s.padded_len,
                      .c = t.scores,
                      .c_row = s.padded_len,
                      .m = rows,
                      .n = padded_keys,
                      .k = s.head_dim,
                      .accumulate = false};
  multiply_block(scores);
  scores.a = dout;
  scores.b = t.v_transposed;
  scores.c = t.dscores;
  multiply_block(scores);
  for (std::int64_t row = 0; row < rows; ++row) {
    softmax_backward_row(t.scores + row * s.padded_len, t.dscores + row * s.padded_len,
                         first + row + 1, padded_keys, head.lse[first + row],
                         head.delta[first + row]);
  }
  BlockProduct to_keys{.a = t.scores,
                       .a_row = 1,
                       .a_column = s.padded_len,
                       .b = dout,
                       .b_row = s.padded_dim,
                       .c = t.dv,
                       .c_row = s.padded_dim,
                       .m = keys,
                       .n = s.padded_dim,
                       .k = rows,
                       .accumulate = true};
  multiply_block(to_keys);
  to_keys.a = t.dscores;
  to_keys.b = q;
  to_keys.c = t.dk;
  multiply_block(to_keys);
  multiply_block({.a = t.dscores,
                  .a_row = s.padded_len,
                  .a_column = 1,
                  .b = t.k,
                  .b_row = s.padded_dim,
                  .c = t.dq,
                  .c_row = s.padded_dim,
                  .m = rows,
                  .n = s.padded_dim,
                  .k = keys,
                  .accumulate = false});
  const Floats d;
  for (std::int64_t row = 0; row < rows; ++row) {
    each_vector(0, s.head_dim, [&](std::int64_t c, auto part) {
      const FloatVec v = load(d, t.dq + row * s.padded_dim + c, part);
      store(hn::Mul(hn::Set(d, p.scale), v), d,
            head.dq + (first + row) * p.dq_layout.outer_stride + c, part);
    });
  }
}

HWY_INLINE void unpack_rows(const float* from, std::int64_t padded, float* to, std::int64_t to_row,
                            std::int64_t rows, std::int64_t cols) {
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(from + row * padded, cols, to + row * to_row);
  }
}

/// All gradients of one head: the query blocks follow each other, so dk and dv are summed in one
/// order whatever the number of threads.
void attention_backward_head(const AttentionBackwardParams& p, const AttentionHead& head,
                             float* memory) {
  const AttentionSizes s = attention_sizes(p.seq_len, p.head_dim);
  const AttentionBackwardScratch t(memory, s);
  pack_transposed(head.k, p.k_layout.outer_stride, t.k_transposed, s.seq_len, s.head_dim,
                  s.padded_len);
  pack_transposed(head.v, p.v_layout.outer_stride, t.v_transposed, s.seq_len, s.head_dim,
                  s.padded_len);
  pack_rows(head.q, p.q_layout.outer_stride, t.q, s.seq_len, s.head_dim, s.padded_dim, p.scale);
  pack_rows(head.k, p.k_layout.outer_stride, t.k, s.seq_len, s.head_dim, s.padded_dim, 1.0F);
  pack_rows(head.dout, p.dout_layout.outer_stride, t.dout, s.seq_len, s.head_dim, s.padded_dim,
            1.0F);
  std::fill_n(t.dk, s.seq_len * s.padded_dim, 0.0F);
  std::fill_n(t.dv, s.seq_len * s.padded_dim, 0.0F);
  for (std::int64_t row = 0; row < s.seq_len; ++row) {
    head.delta[row] = delta_row(head.dout + row * p.dout_layout.outer_stride,
                                head.out + row * p.out_layout.outer_stride, s.head_dim);
  }
  for (std::int64_t first = 0; first < s.seq_len; first += AttentionSizes::query_block) {
    const std::int64_t rows = std::min(AttentionSizes::query_block, s.seq_len - first);
    backward_block(p, s, t, head, first, rows);
  }
  unpack_rows(t.dk, s.padded_dim, head.dk, p.dk_layout.outer_stride, s.seq_len, s.head_dim);
  unpack_rows(t.dv, s.padded_dim, head.dv, p.dv_layout.outer_stride, s.seq_len, s.head_dim);
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(attention_forward_head);
HWY_EXPORT(attention_backward_head);

void attention_forward(const AttentionForwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const std::int64_t size = AttentionForwardScratch::size(attention_sizes(p.seq_len, p.head_dim));
  const auto one_head = HWY_DYNAMIC_DISPATCH(attention_forward_head);
  auto* memory = scratch.get<float>(size * threads);
  parallel_for(threads, p.sequences * p.heads, [&](std::int64_t i, int worker) {
    one_head(p, i / p.heads, i % p.heads, memory + worker * size);
  });
}

namespace {

AttentionHead head_of(const AttentionBackwardParams& p, std::int64_t sequence, std::int64_t head) {
  const auto start = [&](const RowLayout& layout) {
    return sequence * p.seq_len * layout.outer_stride + head * layout.inner_stride;
  };
  const std::int64_t first_row = (sequence * p.heads + head) * p.seq_len;
  return {.q = static_cast<const float*>(p.q) + start(p.q_layout),
          .k = static_cast<const float*>(p.k) + start(p.k_layout),
          .v = static_cast<const float*>(p.v) + start(p.v_layout),
          .out = static_cast<const float*>(p.out) + start(p.out_layout),
          .dout = static_cast<const float*>(p.dout) + start(p.dout_layout),
          .lse = p.lse + first_row,
          .delta = p.delta + first_row,
          .dq = static_cast<float*>(p.dq) + start(p.dq_layout),
          .dk = static_cast<float*>(p.dk) + start(p.dk_layout),
          .dv = static_cast<float*>(p.dv) + start(p.dv_layout)};
}

}  // namespace

void attention_backward(const AttentionBackwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const std::int64_t size = AttentionBackwardScratch::size(attention_sizes(p.seq_len, p.head_dim));
  const auto one_head = HWY_DYNAMIC_DISPATCH(attention_backward_head);
  auto* memory = scratch.get<float>(size * threads);
  parallel_for(threads, p.sequences * p.heads, [&](std::int64_t i, int worker) {
    one_head(p, head_of(p, i / p.heads, i % p.heads), memory + worker * size);
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
