#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/head/logit_row.cuh"

// Selection of a row's largest logits.
namespace train::kernels::cuda {

/// Calls see(logit) for this thread's columns of a row.
template <bool aligned, bool shaped, class See>
__device__ void each_logit(const LogitRow<aligned, shaped>& row, const See& see) {
  for (int column = static_cast<int>(threadIdx.x); column < row.vocab;
       column += static_cast<int>(blockDim.x)) {
    see(row.at(column));
  }
}

// Radix selection of the largest logits of a row: on bits ordered like the logits, eight at a time
// from the highest.

__device__ inline std::uint32_t ordered_bits(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return (bits & 0x80000000U) != 0U ? ~bits : bits | 0x80000000U;
}
__device__ inline float of_ordered_bits(std::uint32_t ordered) {
  return __uint_as_float((ordered & 0x80000000U) != 0U ? ordered & 0x7fffffffU : ~ordered);
}

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;

/// Least of the `top` largest logits, and how many of those equal it.
struct Threshold {
  std::uint32_t ordered = 0;
  std::int32_t equal = 0;
};

/// Counts the digits at `shift` of logits whose higher digits equal the threshold's.
template <class Row>
__device__ void count_digits(const Row& row, const Threshold& found, int shift, int* counts) {
  for (int digit = static_cast<int>(threadIdx.x); digit < kDigits;
       digit += static_cast<int>(blockDim.x)) {
    counts[digit] = 0;
  }
  __syncthreads();
  // Most digits are equal: a thread adds up runs of equal digits.
  int last = 0;
  int times = 0;
  const auto flush = [&] {
    if (times > 0) {
      atomicAdd(&counts[last], times);  // Whole numbers: any order gives the same.
    }
    times = 0;
  };
  each_logit(row, [&](float logit) {
    const std::uint32_t bits = ordered_bits(logit);
    const int above = shift + kDigitBits;
    if (above < 32 && (bits >> above) != (found.ordered >> above)) {
      return;
    }
    const auto digit = static_cast<int>((bits >> shift) & (kDigits - 1));
    if (digit != last) {
      flush();
    }
    last = digit;
    ++times;
  });
  flush();
  __syncthreads();
}

/// The result is given to all threads. REQUIRES: 1 <= top <= columns; no NaN.
template <class Row>
__device__ Threshold threshold_of_row(const Row& row, std::int32_t top) {
  __shared__ int counts[kDigits];
  __shared__ std::uint32_t chosen;
  __shared__ std::int32_t equal;
  Threshold found{.ordered = 0, .equal = top};
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    count_digits(row, found, shift, counts);
    for (int digit = static_cast<int>(threadIdx.x); digit < kDigits;
         digit += static_cast<int>(blockDim.x)) {
      int above = 0;
      for (int higher = digit + 1; higher < kDigits; ++higher) {
        above += counts[higher];
      }
      // True for exactly one digit.
      if (above < found.equal && found.equal <= above + counts[digit]) {
        chosen = static_cast<std::uint32_t>(digit);
        equal = found.equal - above;
      }
    }
    __syncthreads();
    found = {.ordered = found.ordered | chosen << shift, .equal = equal};
  }
  return found;
}

}  // namespace train::kernels::cuda
