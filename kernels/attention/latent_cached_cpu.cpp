#include <algorithm>

#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/attention_scratch.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/latent_cached_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/attention/attention_blocks-inl.hpp"
#include "kernels/simd-inl.hpp"

#ifndef TRAIN_KERNELS_LATENT_CACHED_ONCE
#define TRAIN_KERNELS_LATENT_CACHED_ONCE
namespace train::kernels::cpu {

/// Heads of a row that one thread computes, each a column of its scores.
struct LatentHeads {
  std::int64_t row, first, count;

  [[nodiscard]] std::int64_t padded() const {
    constexpr std::int64_t vector = AttentionSizes::vector;
    return divide_up(count, vector) * vector;
  }
};

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Turns scores [keys, columns] into exponentials and writes each column's 1 / sum: keys in order.
HWY_INLINE void exponentiate_columns(float* scores, std::int64_t keys, std::int64_t columns,
                                     float scale, float* factors) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const FloatVec by = hn::Set(d, scale);
  for (std::int64_t column = 0; column < columns; column += lanes) {
    FloatVec largest = hn::Mul(by, hn::LoadU(d, scores + column));
    for (std::int64_t key = 1; key < keys; ++key) {
      largest = hn::Max(largest, hn::Mul(by, hn::LoadU(d, scores + key * columns + column)));
    }
    FloatVec sum = hn::Zero(d);
    for (std::int64_t key = 0; key < keys; ++key) {
      float* const at = scores + key * columns + column;
      const FloatVec e = exp_of_negative(d, hn::Sub(hn::Mul(by, hn::LoadU(d, at)), largest));
      sum = hn::Add(sum, e);
      hn::StoreU(e, d, at);
    }
    hn::StoreU(hn::Div(hn::Set(d, 1.0F), sum), d, factors + column);
  }
}

/// Reads each cached row once for all heads: heads are the columns of the scores.
void attend_latents(const LatentCachedParams& p, const LatentHeads& of, float* memory) {
  const LatentCache& cache = p.cache;
  const std::int64_t width = cache.latent_dim + cache.rope_dim;
  const std::int64_t keys = p.positions[of.row] + 1, columns = of.padded();
  const float* const rows =
      static_cast<const float*>(cache.rows) + p.texts[of.row] * cache.capacity * width;
  float* const queries = memory;  // [width, columns]
  float* const factors = queries + width * columns;
  float* const out = factors + columns;  // [heads, latent_dim]
  float* const scores = out + of.count * cache.latent_dim;
  const float* const q = static_cast<const float*>(p.q) + of.row * p.q_layout.outer_stride +
                         of.first * p.q_layout.inner_stride;
  pack_transposed(q, p.q_layout.inner_stride, queries, of.count, width, columns);
  multiply_block({.a = rows,
                  .a_row = width,
                  .a_column = 1,
                  .b = queries,
                  .b_row = columns,
                  .c = scores,
                  .c_row = columns,
                  .m = keys,
                  .n = columns,
                  .k = width,
                  .accumulate = false});
  exponentiate_columns(scores, keys, columns, p.scale, factors);
  multiply_block({.a = scores,
                  .a_row = 1,
                  .a_column = columns,
                  .b = rows,
                  .b_row = width,
                  .c = out,
                  .c_row = cache.latent_dim,
                  .m = of.count,
                  .n = cache.latent_dim,
                  .k = keys,
                  .accumulate = false});
  const Floats d;
  for (std::int64_t head = 0; head < of.count; ++head) {
    float* const to = static_cast<float*>(p.out) + of.row * p.out_layout.outer_stride +
                      (of.first + head) * p.out_layout.inner_stride;
    const float* const from = out + head * cache.latent_dim;
    const FloatVec factor = hn::Set(d, factors[head]);
    each_vector(0, cache.latent_dim, [&](std::int64_t c, auto part) {
      store(hn::Mul(factor, load(d, from + c, part)), d, to + c, part);
    });
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(attend_latents);

void latent_cached(const LatentCachedParams& p, int threads) {
  static thread_local Scratch scratch;
  std::int64_t keys = 1;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    TRAIN_CHECK(p.positions[row] >= 0 && p.texts[row] >= 0, "latent_cached: row {}", row);
    keys = std::max(keys, std::int64_t{p.positions[row]} + 1);
  }
  TRAIN_CHECK(keys <= p.cache.capacity, "latent_cached: {} keys, a cache of {}", keys,
              p.cache.capacity);
  // A row's heads are divided only where threads would be idle: bits do not depend on it.
  constexpr std::int64_t vector = AttentionSizes::vector;
  const std::int64_t parts =
      p.rows >= threads ? 1 : std::min<std::int64_t>(threads, divide_up(p.heads, vector));
  const std::int64_t together = divide_up(p.heads, parts);
  const std::int64_t columns = divide_up(together, vector) * vector;
  const std::int64_t width = p.cache.latent_dim + p.cache.rope_dim;
  const std::int64_t size = (width + 1 + keys) * columns + together * p.cache.latent_dim;
  const auto attend = HWY_DYNAMIC_DISPATCH(attend_latents);
  auto* memory = scratch.get<float>(size * threads);
  parallel_for(threads, p.rows * parts, [&](std::int64_t i, int worker) {
    const std::int64_t first = i % parts * together;
    const std::int64_t count = std::min(together, p.heads - first);
    if (count > 0) {
      attend(p, {.row = i / parts, .first = first, .count = count}, memory + worker * size);
    }
  });
}

void latent_append(const LatentAppendParams& p, int /*threads*/) {
  const LatentCache& cache = p.cache;
  const std::int64_t width = cache.latent_dim + cache.rope_dim;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    TRAIN_CHECK(p.positions[row] >= 0 && p.positions[row] < cache.capacity && p.texts[row] >= 0,
                "latent_append: row {} at position {} of {}", row, p.positions[row],
                cache.capacity);
    float* const to = static_cast<float*>(cache.rows) +
                      (p.texts[row] * cache.capacity + p.positions[row]) * width;
    std::copy_n(static_cast<const float*>(p.latent) + row * p.latent_layout.outer_stride,
                cache.latent_dim, to);
    std::copy_n(static_cast<const float*>(p.key) + row * p.key_layout.outer_stride, cache.rope_dim,
                to + cache.latent_dim);
  }
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
