#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.hpp"
#include "kernels/dtype.hpp"
#include "kernels/thread_team.hpp"

namespace train::kernels {

struct MatmulParams;

}  // namespace train::kernels

namespace train::kernels::cpu {

/// Matrix product as kernels built on products call it; one per kernel set.
using Product = void (*)(const MatmulParams& params, int threads);

/// check_params(), and a check that every element is f32, the only type of these kernels.
template <class Params>
void check_cpu_params(const Params& params) {
  check_params(params);
  if constexpr (requires { params.dtype; }) {
    TRAIN_CHECK(params.dtype == DType::f32, "the CPU's kernels know f32 only");
  }
  if constexpr (requires { params.output_dtype; }) {
    TRAIN_CHECK(params.output_dtype == DType::f32, "the CPU's kernels know f32 only");
  }
}

/// Calls body(begin, end) for consecutive blocks of [0, count) on `threads` threads. Blocks depend
/// on the count alone, so results are equal for any number of threads. REQUIRES: body does not
/// throw.
template <class Body>
void parallel_blocks(int threads, std::int64_t count, std::int64_t block, const Body& body) {
  parallel_shares(threads, divide_up(count, block),
                  [&](std::int64_t i, int) { body(i * block, std::min(count, (i + 1) * block)); });
}

/// Elements per block of an elementwise kernel: a few microseconds of work.
inline constexpr std::int64_t kElementBlock = 16384;
/// Calls range(params..., begin, end) for each block of an elementwise kernel.
template <class Range, class... Params>
void each_block(int threads, std::int64_t count, const Range& range, const Params&... params) {
  parallel_blocks(threads, count, kElementBlock,
                  [&](std::int64_t begin, std::int64_t end) { range(params..., begin, end); });
}
/// Rows of `cols` elements per such block.
[[nodiscard]] constexpr std::int64_t row_block(std::int64_t cols) {
  return std::max<std::int64_t>(1, kElementBlock / std::max<std::int64_t>(1, cols));
}

/// Calls body(row) for `rows` rows of `cols` elements, several rows to a block.
template <class Body>
void each_row(int threads, std::int64_t rows, std::int64_t cols, const Body& body) {
  parallel_blocks(threads, rows, row_block(cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      body(row);
    }
  });
}

/// Sums of the columns of `partial`, [blocks, cols], added in rising order: overwrites `sums`.
inline void add_blocks(const float* partial, std::int64_t blocks, std::int64_t cols, float* sums) {
  std::fill_n(sums, cols, 0.0F);
  for (std::int64_t i = 0; i < blocks; ++i) {
    for (std::int64_t c = 0; c < cols; ++c) {
      sums[c] += partial[i * cols + c];
    }
  }
}

/// Growing scratch memory, kept between calls because fresh pages cost more than the kernels that
/// use them. Meant as a thread_local of a stream's thread. Contents are undefined; 64-byte aligned.
class Scratch {
 public:
  template <class T>
  [[nodiscard]] T* get(std::int64_t count) {
    const std::size_t size_bytes = static_cast<std::size_t>(count) * sizeof(T) + kAlignment;
    if (size_bytes > size_bytes_) {
      data_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes);
      size_bytes_ = size_bytes;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(data_.get());
    return reinterpret_cast<T*>(data_.get() + (kAlignment - address % kAlignment) % kAlignment);
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::unique_ptr<std::byte[]> data_;
  std::size_t size_bytes_ = 0;
};

// Scalar bf16 conversions on the host.

inline constexpr std::uint32_t kMagnitudeMask = 0x7fffffffU;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000U;
inline constexpr std::uint32_t kQuietBit = 0x00400000U;
inline constexpr std::uint32_t kBelowHalf = 0x7fffU;  // Largest value of the dropped half, for
                                                      // rounding.

/// The nearest bf16, ties to even. NaN stays NaN, and quiet.
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & kMagnitudeMask) > kInfinityBits;
  const std::uint32_t rounded = nan ? bits | kQuietBit : bits + kBelowHalf + ((bits >> 16U) & 1U);
  return static_cast<std::uint16_t>(rounded >> 16U);
}

inline float from_bf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
}

}  // namespace train::kernels::cpu
