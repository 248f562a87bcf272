#include "kernels/attention/attention_cached.hpp"

#include <algorithm>

#include "kernels/attention/attention_scratch.hpp"
#include "kernels/attention/bf16_blocks.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_cached_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/attention/attention_blocks-inl.hpp"
#include "kernels/simd-inl.hpp"

#ifndef TRAIN_KERNELS_ATTENTION_CACHED_ONCE
#define TRAIN_KERNELS_ATTENTION_CACHED_ONCE
namespace train::kernels::cpu {

/// Query heads of one row that share keys and values.
struct CachedHeads {
  std::int64_t row, first_head, heads;
};

/// Contiguous slots in a cache's ring, and the offset of their scores.
struct Segment {
  std::int64_t slot, score, keys;
};

/// Keys visible to a query, in ascending order of positions.
struct VisibleKeys {
  Segment segments[2];
  std::int64_t count;
};

inline VisibleKeys visible_keys(const AttentionCachedParams& p, std::int64_t row) {
  const std::int64_t first = first_key(p.positions[row], read_window(p.window, p.prefix));
  const std::int64_t count = p.positions[row] + 1 - first;
  const std::int64_t slot = first % p.cache.capacity;
  const std::int64_t before_end = std::min(count, p.cache.capacity - slot);
  return {.segments = {{slot, 0, before_end}, {0, before_end, count - before_end}}, .count = count};
}

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Scratch for the heads of a row.
struct CachedScratch {
  float *scores, *out, *factors;  ///< [heads, score_row], [heads, out_row], [heads]
  Bf16Pair* q_pairs;              ///< [heads, row_of_pairs(head_dim)]
  std::int64_t score_row, out_row;
};

/// Replaces the first `count` scores by exponentials; writes each head's factor, 1 / sum.
HWY_INLINE void exponentiate_heads(const AttentionCachedParams& p, const CachedScratch& t,
                                   const CachedHeads& of, std::int64_t count) {
  for (std::int64_t head = 0; head < of.heads; ++head) {
    const ScoreRow scores{
        .scores = t.scores + head * t.score_row, .begin = 0, .end = count, .padded = t.score_row};
    // With a prefix scores begin with the text's first key.
    hide_scores(hidden_keys(p.positions[of.row], p.window, p.prefix), 0, scores);
    float largest = 0.0F;
    const float sum = exponentiate_scores(scores, p.scale, p.softcap, &largest);
    const float* sink = p.sinks == nullptr ? nullptr : p.sinks + of.first_head + head;
    t.factors[head] = divided_by_sum(largest, sum, sink).factor;
  }
}

/// Queries, keys and values of the heads of a row.
struct CachedInputs {
  const float *q, *keys, *values;
};

HWY_INLINE void attend_floats(const AttentionCachedParams& p, const CachedInputs& in,
                              const VisibleKeys& visible, const CachedHeads& of,
                              const CachedScratch& t) {
  constexpr std::int64_t vector = AttentionSizes::kVector;
  for (const Segment& segment : visible.segments) {
    multiply_block({.a = in.q,
                    .a_row = p.q_layout.inner_stride,
                    .a_column = 1,
                    .b = in.keys + segment.slot,
                    .b_row = p.cache.capacity,
                    .c = t.scores + segment.score,
                    .c_row = t.score_row,
                    .m = of.heads,
                    .n = divide_up(segment.keys, vector) * vector,
                    .k = p.cache.head_dim,
                    .accumulate = false});
  }
  exponentiate_heads(p, t, of, visible.count);
  for (const Segment& segment : visible.segments) {
    multiply_block({.a = t.scores + segment.score,
                    .a_row = t.score_row,
                    .a_column = 1,
                    .b = in.values + segment.slot * p.cache.value_dim,
                    .b_row = p.cache.value_dim,
                    .c = t.out,
                    .c_row = t.out_row,
                    .m = of.heads,
                    .n = t.out_row,
                    .k = segment.keys,
                    .accumulate = segment.score > 0});
  }
}

/// attend_floats() for pairs of bf16. Pairs begin at the first visible key, which may be the second
/// of its pair in the forward pass: a chain adds key after key, so the bits are the same.
HWY_INLINE void attend_pairs(const AttentionCachedParams& p, const CachedInputs& in,
                             const VisibleKeys& visible, const CachedHeads& of,
                             const CachedScratch& t) {
  const KeyValueCache& cache = p.cache;
  const RingRows ring{
      .slot = visible.segments[0].slot, .count = visible.count, .capacity = cache.capacity};
  const std::int64_t q_row = row_of_pairs(cache.head_dim);
  pack_pairs_along(in.q, p.q_layout.inner_stride, t.q_pairs, q_row, of.heads, cache.head_dim);
  cached_scores(t.q_pairs, q_row, in.keys, ring, cache.head_dim, t.scores, t.score_row, of.heads);
  exponentiate_heads(p, t, of, visible.count);
  Bf16Pair* const probabilities = pairs_in(t.scores);
  pack_pairs_along(t.scores, t.score_row, probabilities, t.score_row, of.heads, t.score_row);
  cached_outputs(probabilities, t.score_row, in.values, ring, cache.value_dim, t.out, t.out_row,
                 of.heads);
}

/// Sums in the order of attention_forward: over a head's elements for a score, over the keys in
/// order for an output.
void attend_cached(const AttentionCachedParams& p, const CachedHeads& of, float* memory,
                   Operands operands) {
  constexpr std::int64_t vector = AttentionSizes::kVector;
  const KeyValueCache& cache = p.cache;
  const VisibleKeys visible = visible_keys(p, of.row);
  const std::int64_t padded = cached_score_row(visible.count);
  const std::int64_t padded_value = divide_up(cache.value_dim, vector) * vector;
  float* const out = memory + of.heads * padded;
  float* const factors = out + of.heads * padded_value;
  const CachedScratch t{.scores = memory,
                        .out = out,
                        .factors = factors,
                        .q_pairs = pairs_in(factors + divide_up(of.heads, vector) * vector),
                        .score_row = padded,
                        .out_row = padded_value};
  const std::int64_t kv = p.texts[of.row] * cache.kv_heads + of.first_head / p.group();
  const CachedInputs in{
      .q = static_cast<const float*>(p.q) + of.row * p.q_layout.outer_stride +
           of.first_head * p.q_layout.inner_stride,
      .keys = static_cast<const float*>(cache.keys) + kv * cache.head_dim * cache.capacity,
      .values = static_cast<const float*>(cache.values) + kv * cache.capacity * cache.value_dim};
  if (operands == Operands::bf16) {
    attend_pairs(p, in, visible, of, t);
  } else {
    attend_floats(p, in, visible, of, t);
  }
  const Floats d;
  for (std::int64_t head = 0; head < of.heads; ++head) {
    float* to = static_cast<float*>(p.out) + of.row * p.out_layout.outer_stride +
                (of.first_head + head) * p.out_layout.inner_stride;
    const float* from = out + head * padded_value;
    const FloatVec factor = hn::Set(d, factors[head]);
    each_vector(0, cache.value_dim, [&](std::int64_t c, auto part) {
      store(hn::Mul(factor, load(d, from + c, part)), d, to + c, part);
    });
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(attend_cached);

void attention_cached_with(const AttentionCachedParams& p, int threads, Operands operands) {
  static thread_local Scratch scratch;
  std::int64_t most_keys = 1;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    TRAIN_CHECK(p.positions[row] >= 0 && p.texts[row] >= 0, "attention_cached: row {}", row);
    most_keys = std::max(most_keys, visible_keys(p, row).count);
  }
  TRAIN_CHECK(most_keys <= p.cache.capacity, "attention_cached: {} keys, a cache of {}", most_keys,
              p.cache.capacity);
  // Heads of a group are computed together to read their keys once, or one by one if that would
  // leave threads idle.
  const std::int64_t together = p.rows * p.cache.kv_heads >= threads ? p.group() : 1;
  const std::int64_t jobs_of_row = p.heads / together;
  const std::int64_t scores = together * cached_score_row(most_keys);
  const std::int64_t size =
      scores +
      together * (divide_up(p.cache.value_dim, AttentionSizes::kVector) * AttentionSizes::kVector) +
      divide_up(together, AttentionSizes::kVector) * AttentionSizes::kVector +
      together * row_of_pairs(p.cache.head_dim);
  const auto attend = HWY_DYNAMIC_DISPATCH(attend_cached);
  auto* memory = scratch.get<float>(size * threads);
  parallel_for(threads, p.rows * jobs_of_row, [&](std::int64_t i, int worker) {
    attend(p, {.row = i / jobs_of_row, .first_head = i % jobs_of_row * together, .heads = together},
           memory + worker * size, operands);
  });
}

void attention_cached(const AttentionCachedParams& p, int threads) {
  attention_cached_with(p, threads, Operands::f32);
}

void key_value_append(const KeyValueAppendParams& p, int threads) {
  const KeyValueCache& cache = p.cache;
  // Each thread handles some heads of all rows, so that rows of one slot stay in order.
  parallel_for(threads, cache.kv_heads, [&](std::int64_t head, int) {
    for (std::int64_t row = 0; row < p.rows; ++row) {
      const std::int64_t slot = p.positions[row] % cache.capacity;
      const std::int64_t kv = p.texts[row] * cache.kv_heads + head;
      const float* k = static_cast<const float*>(p.k) + row * p.k_layout.outer_stride +
                       head * p.k_layout.inner_stride;
      const float* v = static_cast<const float*>(p.v) + row * p.v_layout.outer_stride +
                       head * p.v_layout.inner_stride;
      float* column = static_cast<float*>(cache.keys) + kv * cache.head_dim * cache.capacity + slot;
      for (std::int64_t d = 0; d < cache.head_dim; ++d) {
        column[d * cache.capacity] = k[d];
      }
      std::copy_n(
          v, cache.value_dim,
          static_cast<float*>(cache.values) + (kv * cache.capacity + slot) * cache.value_dim);
    }
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
