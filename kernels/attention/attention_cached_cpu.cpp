#include "kernels/attention/attention_cached.hpp"

#include <cmath>

#include "kernels/attention/attention_scratch.hpp"
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

/// Some query heads of one row, which read the same keys and values.
struct CachedHeads {
  std::int64_t row, first_head, heads;
};

/// Slots that lie side by side in the ring of a cache, and where their scores begin.
struct Segment {
  std::int64_t slot, score, keys;
};

/// What a query sees, in ascending order of positions.
struct VisibleKeys {
  Segment segments[2];
  std::int64_t count;
};

inline VisibleKeys visible_keys(const AttentionCachedParams& p, std::int64_t row) {
  const std::int64_t first = first_key(p.positions[row], p.window);
  const std::int64_t count = p.positions[row] + 1 - first;
  const std::int64_t slot = first % p.cache.capacity;
  const std::int64_t before_end = std::min(count, p.cache.capacity - slot);
  return {.segments = {{slot, 0, before_end}, {0, before_end, count - before_end}}, .count = count};
}

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// The sums are attention_forward's: over the elements of a head for a score, over the keys in
/// their order for an output.
void attend_cached(const AttentionCachedParams& p, const CachedHeads& of, float* scores,
                   float* out) {
  constexpr std::int64_t vector = AttentionSizes::vector;
  const KeyValueCache& cache = p.cache;
  const VisibleKeys visible = visible_keys(p, of.row);
  const std::int64_t padded = cached_score_row(visible.count);
  const std::int64_t padded_value = divide_up(cache.value_dim, vector) * vector;
  const std::int64_t kv = p.texts[of.row] * cache.kv_heads + of.first_head / p.group();
  const float* keys = static_cast<const float*>(cache.keys) + kv * cache.head_dim * cache.capacity;
  const float* values =
      static_cast<const float*>(cache.values) + kv * cache.capacity * cache.value_dim;
  const float* q = static_cast<const float*>(p.q) + of.row * p.q_layout.outer_stride +
                   of.first_head * p.q_layout.inner_stride;
  for (const Segment& segment : visible.segments) {
    multiply_block({.a = q,
                    .a_row = p.q_layout.inner_stride,
                    .a_column = 1,
                    .b = keys + segment.slot,
                    .b_row = cache.capacity,
                    .c = scores + segment.score,
                    .c_row = padded,
                    .m = of.heads,
                    .n = divide_up(segment.keys, vector) * vector,
                    .k = cache.head_dim,
                    .accumulate = false});
  }
  for (std::int64_t head = 0; head < of.heads; ++head) {
    float largest = 0.0F;
    const float sum = exponentiate_scores(
        {.scores = scores + head * padded, .begin = 0, .end = visible.count, .padded = padded},
        p.scale, p.softcap, &largest);
    out[of.heads * padded_value + head] = 1.0F / sum;
  }
  for (const Segment& segment : visible.segments) {
    multiply_block({.a = scores + segment.score,
                    .a_row = padded,
                    .a_column = 1,
                    .b = values + segment.slot * cache.value_dim,
                    .b_row = cache.value_dim,
                    .c = out,
                    .c_row = padded_value,
                    .m = of.heads,
                    .n = padded_value,
                    .k = segment.keys,
                    .accumulate = segment.score > 0});
  }
  const Floats d;
  for (std::int64_t head = 0; head < of.heads; ++head) {
    float* to = static_cast<float*>(p.out) + of.row * p.out_layout.outer_stride +
                (of.first_head + head) * p.out_layout.inner_stride;
    const float* from = out + head * padded_value;
    const FloatVec factor = hn::Set(d, out[of.heads * padded_value + head]);
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

void attention_cached(const AttentionCachedParams& p, int threads) {
  static thread_local Scratch scratch;
  std::int64_t most_keys = 1;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    TRAIN_CHECK(p.positions[row] >= 0 && p.texts[row] >= 0, "attention_cached: row {}", row);
    most_keys = std::max(most_keys, visible_keys(p, row).count);
  }
  TRAIN_CHECK(most_keys <= p.cache.capacity, "attention_cached: {} keys, a cache of {}", most_keys,
              p.cache.capacity);
  // Heads of a group together read their keys once; where that leaves threads idle, one by one.
  const std::int64_t together = p.rows * p.cache.kv_heads >= threads ? p.group() : 1;
  const std::int64_t jobs_of_row = p.heads / together;
  const std::int64_t scores = together * cached_score_row(most_keys);
  const std::int64_t size =
      scores +
      together * (divide_up(p.cache.value_dim, AttentionSizes::vector) * AttentionSizes::vector) +
      divide_up(together, AttentionSizes::vector) * AttentionSizes::vector;
  const auto attend = HWY_DYNAMIC_DISPATCH(attend_cached);
  auto* memory = scratch.get<float>(size * threads);
  parallel_for(threads, p.rows * jobs_of_row, [&](std::int64_t i, int worker) {
    float* of_worker = memory + worker * size;
    attend(p, {.row = i / jobs_of_row, .first_head = i % jobs_of_row * together, .heads = together},
           of_worker, of_worker + scores);
  });
}

void key_value_append(const KeyValueAppendParams& p, int threads) {
  const KeyValueCache& cache = p.cache;
  // A thread some heads of all rows: rows of one slot stay in order.
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
