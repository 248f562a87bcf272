#pragma once

#include <immintrin.h>

#include <hwy/highway.h>

#include "kernels/gemm/bf16_gemm.hpp"

/// Functions compiled for AVX512_BF16; they must not run elsewhere. GCC warns about the undefined
/// operands in its own intrinsics.
#ifdef __clang__
#define TRAIN_BEFORE_BF16 HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
#define TRAIN_AFTER_BF16 HWY_POP_ATTRIBUTES
#else
#define TRAIN_BEFORE_BF16                                                                    \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"") \
      HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
#define TRAIN_AFTER_BF16 HWY_POP_ATTRIBUTES _Pragma("GCC diagnostic pop")
#endif

TRAIN_BEFORE_BF16
namespace train::kernels::cpu {

inline constexpr std::int64_t kPairLanes = 16;  // Pairs per vector.

/// The first `count` of 16 lanes.
inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>((1U << static_cast<unsigned>(count)) - 1U);
}

inline __m512i pairs_of(__m512bh halves) { return reinterpret_cast<__m512i>(halves); }

/// Makes 16 pairs from 32 neighbouring elements. Rounds to nearest even; NaN stays NaN.
inline __m512i pairs_along(__m512 first, __m512 last) {
  return _mm512_rol_epi32(pairs_of(_mm512_cvtne2ps_pbh(last, first)), 16);
}

inline __m512i pairs_along(const float* from) {
  return pairs_along(_mm512_loadu_ps(from), _mm512_loadu_ps(from + kPairLanes));
}

/// Makes 16 pairs from the first `count` < 32 elements, filled up with zeros.
inline __m512i pairs_along(const float* from, std::int64_t count) {
  const std::int64_t first = std::min(count, kPairLanes);
  return pairs_along(_mm512_maskz_loadu_ps(first_lanes(first), from),
                     _mm512_maskz_loadu_ps(first_lanes(count - first), from + first));
}

/// Makes 16 pairs from two rows; `before` has the smaller k.
inline __m512i pairs_across(__m512 before, __m512 after) {
  const __m512i order =
      _mm512_set_epi32(0x001F000F, 0x001E000E, 0x001D000D, 0x001C000C, 0x001B000B, 0x001A000A,
                       0x00190009, 0x00180008, 0x00170007, 0x00160006, 0x00150005, 0x00140004,
                       0x00130003, 0x00120002, 0x00110001, 0x00100000);
  return _mm512_permutexvar_epi16(order, pairs_of(_mm512_cvtne2ps_pbh(before, after)));
}

inline __m512 add_products(__m512 sum, __m512i left, __m512i right) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right));
}

/// Transposes 16 x 16 pairs.
inline void transpose(__m512i* x) {
  __m512i y[kPairLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kPairLanes; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kPairLanes; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  constexpr int even = 0x88;  // 128-bit blocks: the first and third of each of two vectors,
  constexpr int odd = 0xDD;   // or the second and fourth.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], even);
    y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], odd);
    y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], even);
    y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], odd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], even);
    x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], odd);
  }
}

/// Prefetches the next rows of load_pairs_across(); hardware prefetchers do not follow that many.
inline void prefetch_pairs(const float* from, std::int64_t stride) {
  for (std::int64_t row = 0; row < kPairLanes; ++row) {
    _mm_prefetch(reinterpret_cast<const char*>(from + row * stride), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(from + row * stride + kPairLanes), _MM_HINT_T0);
  }
}

/// Loads 16 pairs of each of up to 16 rows, `stride` apart, transposed: to[i] holds pair i of every
/// row. Rows from `rows` on and elements from `count` on (of 32) are zero.
inline void load_pairs_across(const float* from, std::int64_t stride, std::int64_t rows,
                              std::int64_t count, __m512i* to) {
  if (rows >= kPairLanes && count >= 2 * kPairLanes) {
#pragma GCC unroll 16
    for (int row = 0; row < kPairLanes; ++row) {
      to[row] = pairs_along(from + row * stride);
    }
  } else {
    for (int row = 0; row < kPairLanes; ++row) {
      to[row] = row < rows ? pairs_along(from + row * stride, std::min(count, 2 * kPairLanes))
                           : _mm512_setzero_si512();
    }
  }
  transpose(to);
}

}  // namespace train::kernels::cpu
TRAIN_AFTER_BF16
