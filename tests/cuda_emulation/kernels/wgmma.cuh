#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>

#include "kernels/mma.cuh"
#include "tests/cuda_emulation/block.hpp"

// In the place of the product's header of this name, as mma.cuh: operands in shared memory lie
// where the PTX ISA's description of a matrix says. A product is computed when it is waited for;
// until then its sums are NaN.
namespace train::kernels::cuda {

constexpr bool kCompiledForWarpgroups = true;

using WarpgroupOperand = std::uint64_t;

inline void begin_products() {}
inline void commit_products() { cuda_emulation::commit_products(); }
template <int pending>
void wait_for_products() {
  cuda_emulation::wait_for_products(pending);
}
inline void publish_shared() { cuda_emulation::publish_shared(); }
template <int columns>
void hold_sums(float (&)[columns][4]) {}

namespace emulated {

constexpr int kWgmma = 4;

/// The 16 bytes that begin with element (line, k) of a matrix whose lines run along k, or with
/// `by_lines` across it; null of one with another swizzle than that of 128 bytes.
inline const std::byte* chunk_of(WarpgroupOperand matrix, bool by_lines, unsigned line,
                                 unsigned k) {
  constexpr auto field = [](WarpgroupOperand bits, unsigned first) {
    return static_cast<std::uint32_t>(bits >> first & 0x3fffU) * 16;
  };
  if (matrix >> 62U != 1) {
    return nullptr;
  }
  const std::uint32_t leading = field(matrix, 16);
  const std::uint32_t stride = field(matrix, 32);
  std::uint32_t address = field(matrix, 0);
  address += by_lines ? line / 64 * leading + k / 8 * stride + k % 8 * 128 + line % 64 * 2
                      : line / 8 * stride + line % 8 * 128 + k * 2;
  address ^= (address >> 7U & 7U) << 4U;
  return cuda_emulation::product_chunk(address);
}

/// Element `i` of a chunk.
inline double element_of(const std::byte* chunk, unsigned i) {
  if (chunk == nullptr) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, chunk + i * sizeof(bits), sizeof(bits));
  return half_of(bits, 0);
}

/// Two lines of an operand: the part that one lane multiplies.
using Lines = std::array<std::array<double, 16>, 2>;

/// Lines `line` and `line + 1`; `line` is even.
inline Lines pair_of(WarpgroupOperand matrix, bool by_lines, unsigned line) {
  Lines lines;
  for (unsigned k = 0; k < 16; k += by_lines ? 1 : 8) {
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned first = by_lines ? line / 8 * 8 : line + i;
      const std::byte* chunk = chunk_of(matrix, by_lines, first, k);
      for (unsigned j = 0; j < (by_lines ? 1 : 8); ++j) {
        lines[i][k + j] = element_of(chunk, by_lines ? line % 8 + i : j);
      }
    }
  }
  return lines;
}

/// Rows group and group + 8 of the left operand, which the warp has in registers.
inline Lines rows_of(const std::uint32_t (&a)[4]) {
  const auto words = cuda_emulation::WarpWords::show(kWgmma, {a[0], a[1], a[2], a[3]});
  Lines rows;
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned k = 0; k < 16; ++k) {
      const std::uint32_t both = words.lane(group() * 4 + k % 8 / 2)[k / 8 * 2 + half];
      rows[half][k] = half_of(both, k % 2);
    }
  }
  return rows;
}

/// The left operand as it is when the product runs.
inline Lines at_the_end(const Lines& rows) { return rows; }
inline Lines at_the_end(WarpgroupOperand a) {
  Lines rows;
  const unsigned warp = cuda_emulation::here().thread.x / 32 % 4;
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned k = 0; k < 16; ++k) {
      const std::byte* chunk = chunk_of(a, false, warp * 16 + half * 8 + group(), k / 8 * 8);
      rows[half][k] = element_of(chunk, k % 8);
    }
  }
  return rows;
}

/// The sums are rounded once: a device's may lose some more of their last bits.
template <bool by_columns, int blocks, class Left>
void begin_product(float (&c)[blocks][4], const Left& left, WarpgroupOperand b, bool add) {
  cuda_emulation::multiply_later(&c[0][0], sizeof(c) / sizeof(float), [&c, left, b, add] {
    const Lines rows = at_the_end(left);
    for (unsigned column = 0; column < blocks * 8; column += 8) {
      const Lines columns = pair_of(b, by_columns, column + pair());
      for (unsigned i = 0; i < 4; ++i) {
        float& to = c[column / 8][i];
        double sum = add ? static_cast<double>(to) : 0.0;
        for (unsigned k = 0; k < 16; ++k) {
          sum += rows[i / 2][k] * columns[i % 2][k];
        }
        to = static_cast<float>(sum);
      }
    }
  });
}

}  // namespace emulated

template <int by_columns, int blocks>
void multiply_warpgroup(float (&c)[blocks][4], WarpgroupOperand a, WarpgroupOperand b, bool add) {
  static_assert(blocks == 8 || blocks == 16);
  // All of a warp come here together, as registers of one are shown.
  std::ignore = cuda_emulation::WarpWords::show(emulated::kWgmma, {});
  emulated::begin_product<by_columns != 0>(c, a, b, add);
}
template <int by_columns, int blocks>
void multiply_warpgroup(float (&c)[blocks][4], const std::uint32_t (&a)[4], WarpgroupOperand b,
                        bool add) {
  static_assert(blocks == 8 || blocks == 16);
  emulated::begin_product<by_columns != 0>(c, emulated::rows_of(a), b, add);
}

}  // namespace train::kernels::cuda
