#include <algorithm>
#include <limits>

#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/attention_scratch.hpp"
#include "kernels/attention/bf16_blocks.hpp"
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

/// Cached rows whose softmax is computed at once. Chunks begin at multiples of it, so the order of
/// a text's sums depends on its length alone.
inline constexpr std::int64_t kLatentChunk = 256;

/// Sizes of one row's computation. Heads are columns of the scores, so each is padded to vectors.
struct LatentSizes {
  explicit LatentSizes(const LatentCachedParams& p)
      : heads(p.heads),
        latent(p.cache.latent_dim),
        width(p.cache.latent_dim + p.cache.rope_dim),
        padded_heads(padded_keys(heads)),
        padded_latent(padded_keys(latent)) {}

  /// Floats of a thread's scratch: queries, weights, and rows that are packed.
  [[nodiscard]] std::int64_t scratch() const {
    return width * padded_heads + kLatentChunk * (padded_heads + row_of_pairs(width)) +
           kLatentChunk * padded_latent;
  }
  /// Floats of a LatentPart.
  [[nodiscard]] std::int64_t part() const { return padded_heads * (2 + padded_latent); }

  std::int64_t heads, latent, width;
  std::int64_t padded_heads, padded_latent;
};

/// Softmax over some chunks of a text, before the division by its sums.
struct LatentPart {
  LatentPart(float* memory, const LatentSizes& s)
      : largest(memory), sums(largest + s.padded_heads), out(sums + s.padded_heads) {}

  float *largest, *sums;  ///< [padded_heads]
  float* out;             ///< [padded_heads, padded_latent]
};

/// Chunk of a row's text.
struct LatentChunk {
  std::int64_t row, index;
};

inline std::int64_t chunks_of(const LatentCachedParams& p, std::int64_t row) {
  return divide_up(std::int64_t{p.positions[row]} + 1, kLatentChunk);
}

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Replaces scores [keys, padded_heads] by exp(scale score - largest); writes largest and sums.
HWY_INLINE void exponentiate_columns(float* scores, std::int64_t keys, float scale,
                                     const LatentSizes& s, const LatentPart& to) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const FloatVec factor = hn::Set(d, scale);
  for (std::int64_t head = 0; head < s.padded_heads; head += lanes) {
    FloatVec largest = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (std::int64_t key = 0; key < keys; ++key) {
      float* const of_key = scores + key * s.padded_heads + head;
      const FloatVec scaled = hn::Mul(factor, hn::LoadU(d, of_key));
      hn::StoreU(scaled, d, of_key);
      largest = hn::Max(largest, scaled);
    }
    FloatVec sum = hn::Zero(d);
    for (std::int64_t key = 0; key < keys; ++key) {
      float* const of_key = scores + key * s.padded_heads + head;
      const FloatVec e = exp_of_negative(d, hn::Sub(hn::LoadU(d, of_key), largest));
      hn::StoreU(e, d, of_key);
      sum = hn::Add(sum, e);
    }
    hn::StoreU(largest, d, to.largest + head);
    hn::StoreU(sum, d, to.sums + head);
  }
}

/// Rows of a chunk, its row's queries, and scratch.
struct LatentInputs {
  const float *q, *rows;
  std::int64_t q_row, keys;
  float *queries, *weights, *packed;
};

HWY_INLINE void latent_floats(const LatentCachedParams& p, const LatentSizes& s,
                              const LatentInputs& in, const LatentPart& to) {
  pack_transposed(in.q, in.q_row, in.queries, s.heads, s.width, s.padded_heads);
  multiply_block({.a = in.rows,
                  .a_row = s.width,
                  .a_column = 1,
                  .b = in.queries,
                  .b_row = s.padded_heads,
                  .c = in.weights,
                  .c_row = s.padded_heads,
                  .m = in.keys,
                  .n = s.padded_heads,
                  .k = s.width,
                  .accumulate = false});
  exponentiate_columns(in.weights, in.keys, p.scale, s, to);
  const bool whole = s.padded_latent == s.latent;  // Whole vectors can be read in place.
  if (!whole) {
    pack_rows(in.rows, s.width, in.packed, in.keys, s.latent, s.padded_latent, 1.0F);
  }
  multiply_block({.a = in.weights,
                  .a_row = 1,
                  .a_column = s.padded_heads,
                  .b = whole ? in.rows : in.packed,
                  .b_row = whole ? s.width : s.padded_latent,
                  .c = to.out,
                  .c_row = s.padded_latent,
                  .m = s.heads,
                  .n = s.padded_latent,
                  .k = in.keys,
                  .accumulate = false});
}

/// latent_floats() for pairs of bf16: queries, cached rows and exponentials are rounded.
HWY_INLINE void latent_pairs(const LatentCachedParams& p, const LatentSizes& s,
                             const LatentInputs& in, const LatentPart& to) {
  const std::int64_t row_pairs = row_of_pairs(s.width);
  Bf16Pair* const along = pairs_in(in.packed);
  Bf16Pair* const across = along + kLatentChunk * row_pairs;
  pack_pairs_transposed(in.q, in.q_row, pairs_in(in.queries), s.padded_heads, s.heads, s.width);
  pack_pairs_along(in.rows, s.width, along, row_pairs, in.keys, s.width);
  multiply_pairs({.a = along,
                  .a_row = row_pairs,
                  .a_column = 1,
                  .b = pairs_in(in.queries),
                  .b_row = s.padded_heads,
                  .c = in.weights,
                  .c_row = s.padded_heads,
                  .m = in.keys,
                  .n = s.padded_heads,
                  .k = s.width});
  exponentiate_columns(in.weights, in.keys, p.scale, s, to);
  Bf16Pair* const weights = pairs_in(in.weights);
  pack_pairs_across(in.weights, s.padded_heads, weights, s.padded_heads, in.keys, s.padded_heads,
                    s.padded_heads);
  pack_pairs_across(in.rows, s.width, across, s.padded_latent, in.keys, s.latent, s.padded_latent);
  multiply_pairs({.a = weights,
                  .a_row = 1,
                  .a_column = s.padded_heads,
                  .b = across,
                  .b_row = s.padded_latent,
                  .c = to.out,
                  .c_row = s.padded_latent,
                  .m = s.heads,
                  .n = s.padded_latent,
                  .k = in.keys});
}

/// Computes one chunk for all heads of a row, which read it together.
void latent_chunk(const LatentCachedParams& p, const LatentChunk& of, float* memory, float* part,
                  Operands operands) {
  const LatentSizes s(p);
  const std::int64_t first = of.index * kLatentChunk;
  const std::int64_t text = p.texts[of.row];
  float* const weights = memory + s.width * s.padded_heads;
  const LatentInputs in{
      .q = static_cast<const float*>(p.q) + of.row * p.q_layout.outer_stride,
      .rows = static_cast<const float*>(p.cache.rows) + (text * p.cache.capacity + first) * s.width,
      .q_row = p.q_layout.inner_stride,
      .keys = std::min(kLatentChunk, p.positions[of.row] + 1 - first),
      .queries = memory,
      .weights = weights,
      .packed = weights + kLatentChunk * s.padded_heads};
  operands == Operands::bf16 ? latent_pairs(p, s, in, LatentPart(part, s))
                             : latent_floats(p, s, in, LatentPart(part, s));
}

/// Adds the next chunk's part to that of the chunks before it.
void latent_add(const LatentCachedParams& p, float* part, float* next_part) {
  const LatentSizes s(p);
  const LatentPart to(part, s);
  const LatentPart next(next_part, s);
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t head = 0; head < s.padded_heads; head += lanes) {
    const FloatVec before = hn::LoadU(d, to.largest + head);
    const FloatVec after = hn::LoadU(d, next.largest + head);
    const FloatVec largest = hn::Max(before, after);
    const FloatVec keep = exp_of_negative(d, hn::Sub(before, largest));
    const FloatVec take = exp_of_negative(d, hn::Sub(after, largest));
    const FloatVec kept = hn::Mul(hn::LoadU(d, to.sums + head), keep);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, next.sums + head), take, kept), d, to.sums + head);
    hn::StoreU(largest, d, to.largest + head);
    hn::StoreU(keep, d, next.largest + head);  // The factors of the outputs, from here on.
    hn::StoreU(take, d, next.sums + head);
  }
  for (std::int64_t head = 0; head < s.heads; ++head) {
    const FloatVec keep = hn::Set(d, next.largest[head]);
    const FloatVec take = hn::Set(d, next.sums[head]);
    float* const sums = to.out + head * s.padded_latent;
    const float* const added = next.out + head * s.padded_latent;
    for (std::int64_t c = 0; c < s.padded_latent; c += lanes) {
      const FloatVec kept = hn::Mul(keep, hn::LoadU(d, sums + c));
      hn::StoreU(hn::MulAdd(take, hn::LoadU(d, added + c), kept), d, sums + c);
    }
  }
}

/// Writes a row's outputs.
void latent_finish(const LatentCachedParams& p, std::int64_t row, float* part) {
  const LatentSizes s(p);
  const LatentPart from(part, s);
  const Floats d;
  for (std::int64_t head = 0; head < s.heads; ++head) {
    float* const to = static_cast<float*>(p.out) + row * p.out_layout.outer_stride +
                      head * p.out_layout.inner_stride;
    const FloatVec factor = hn::Set(d, 1.0F / from.sums[head]);
    each_vector(0, s.latent, [&](std::int64_t c, auto part_of) {
      store(hn::Mul(factor, load(d, from.out + head * s.padded_latent + c, part_of)), d, to + c,
            part_of);
    });
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(latent_chunk);
HWY_EXPORT(latent_add);
HWY_EXPORT(latent_finish);

namespace {

/// Computes each row on one thread, chunk after chunk.
void rows_apart(const LatentCachedParams& p, int threads, Operands operands) {
  static thread_local Scratch scratch;
  const LatentSizes s(p);
  const auto chunk = HWY_DYNAMIC_DISPATCH(latent_chunk);
  const auto add = HWY_DYNAMIC_DISPATCH(latent_add);
  const auto finish = HWY_DYNAMIC_DISPATCH(latent_finish);
  const std::int64_t size = s.scratch() + 2 * s.part();
  float* const memory = scratch.get<float>(size * threads);
  parallel_for(threads, p.rows, [&](std::int64_t row, int worker) {
    float* const part = memory + worker * size;
    float* const next = part + s.part();
    float* const own = next + s.part();
    chunk(p, {.row = row, .index = 0}, own, part, operands);
    for (std::int64_t index = 1; index < chunks_of(p, row); ++index) {
      chunk(p, {.row = row, .index = index}, own, next, operands);
      add(p, part, next);
    }
    finish(p, row, part);
  });
}

/// Computes the chunks of few rows on all threads, and then adds them in the same order.
void chunks_apart(const LatentCachedParams& p, std::int64_t most_chunks, int threads,
                  Operands operands) {
  static thread_local Scratch scratch;
  const LatentSizes s(p);
  const auto chunk = HWY_DYNAMIC_DISPATCH(latent_chunk);
  const auto add = HWY_DYNAMIC_DISPATCH(latent_add);
  const auto finish = HWY_DYNAMIC_DISPATCH(latent_finish);
  float* const memory = scratch.get<float>(s.scratch() * threads + s.part() * p.rows * most_chunks);
  float* const parts = memory + s.scratch() * threads;
  parallel_for(threads, p.rows * most_chunks, [&](std::int64_t i, int worker) {
    const LatentChunk of{.row = i / most_chunks, .index = i % most_chunks};
    if (of.index < chunks_of(p, of.row)) {
      chunk(p, of, memory + worker * s.scratch(), parts + i * s.part(), operands);
    }
  });
  parallel_for(threads, p.rows, [&](std::int64_t row, int) {
    float* const part = parts + row * most_chunks * s.part();
    for (std::int64_t index = 1; index < chunks_of(p, row); ++index) {
      add(p, part, part + index * s.part());
    }
    finish(p, row, part);
  });
}

}  // namespace

void latent_cached_with(const LatentCachedParams& p, int threads, Operands operands) {
  std::int64_t most_chunks = 1;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    TRAIN_CHECK(p.texts[row] >= 0 && p.positions[row] >= 0 && p.positions[row] < p.cache.capacity,
                "latent_cached: position {} of text {} in a cache of {}", p.positions[row],
                p.texts[row], p.cache.capacity);
    most_chunks = std::max(most_chunks, chunks_of(p, row));
  }
  if (p.rows >= threads || most_chunks == 1) {
    rows_apart(p, threads, operands);
  } else {
    chunks_apart(p, most_chunks, threads, operands);
  }
}

void latent_cached(const LatentCachedParams& p, int threads) {
  latent_cached_with(p, threads, Operands::f32);
}

void latent_append(const LatentAppendParams& p, int threads) {
  const LatentCache& cache = p.cache;
  const std::int64_t width = cache.latent_dim + cache.rope_dim;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    TRAIN_CHECK(p.texts[row] >= 0 && p.positions[row] >= 0 && p.positions[row] < cache.capacity,
                "latent_append: position {} of text {} in a cache of {}", p.positions[row],
                p.texts[row], cache.capacity);
  }
  parallel_for(threads, p.rows, [&](std::int64_t row, int) {
    float* const to = static_cast<float*>(cache.rows) +
                      (p.texts[row] * cache.capacity + p.positions[row]) * width;
    std::copy_n(static_cast<const float*>(p.latent) + row * p.latent_layout.outer_stride,
                cache.latent_dim, to);
    std::copy_n(static_cast<const float*>(p.key) + row * p.key_layout.outer_stride, cache.rope_dim,
                to + cache.latent_dim);
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
