#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/instructions.cuh"
#include "tests/cuda_emulation/block.hpp"

// In the place of the product's header of this name, whose instructions only a device has: the same
// functions, with every lane's part of a matrix where the PTX ISA says.
namespace train::kernels::cuda {

using SharedAddress = std::uint32_t;

inline SharedAddress shared_address(const void* shared) {
  return static_cast<SharedAddress>(static_cast<const std::byte*>(shared) -
                                    cuda_emulation::dynamic_shared_memory());
}

namespace emulated {

// What a warp does together.
constexpr int kLdmatrix = 1;
constexpr int kLdmatrixTrans = 2;
constexpr int kMma = 3;

inline unsigned group() { return cuda_emulation::lane_index() / 4; }
inline unsigned pair() { return cuda_emulation::lane_index() % 4 * 2; }

inline std::uint32_t joined(std::uint32_t low, std::uint32_t high) { return low | high << 16U; }

/// The bf16 in the lower or upper half.
inline double half_of(std::uint32_t both, unsigned upper) {
  return static_cast<double>(std::bit_cast<float>(upper != 0 ? both & 0xffff0000U : both << 16U));
}

/// Element (row, column) of the 8 x 8 matrix whose row r begins where lane `first + r` says, and
/// `Bits` that follow it.
template <class Bits>
std::uint32_t element(const cuda_emulation::WarpWords& rows, unsigned first, unsigned row,
                      unsigned column) {
  Bits bits = 0;
  const std::byte* chunk = cuda_emulation::shared_chunk(rows.lane(first + row)[0]);
  std::memcpy(&bits, chunk + column * sizeof(std::uint16_t), sizeof(bits));
  return bits;
}

}  // namespace emulated

inline void load_matrices(std::uint32_t (&part)[4], SharedAddress row) {
  const auto rows = cuda_emulation::WarpWords::show(emulated::kLdmatrix, {row});
  for (unsigned i = 0; i < 4; ++i) {
    part[i] = emulated::element<std::uint32_t>(rows, 8 * i, emulated::group(), emulated::pair());
  }
}

inline void load_matrices_transposed(std::uint32_t (&part)[4], SharedAddress row) {
  const auto rows = cuda_emulation::WarpWords::show(emulated::kLdmatrixTrans, {row});
  for (unsigned i = 0; i < 4; ++i) {
    using Bits = std::uint16_t;
    part[i] = emulated::joined(
        emulated::element<Bits>(rows, 8 * i, emulated::pair(), emulated::group()),
        emulated::element<Bits>(rows, 8 * i, emulated::pair() + 1, emulated::group()));
  }
}

/// The sum is rounded once: a device's may lose some more of its last bits.
inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                         std::uint32_t b1) {
  const auto words =
      cuda_emulation::WarpWords::show(emulated::kMma, {a[0], a[1], a[2], a[3], b0, b1});
  // Element (row, k) of a is in lane row % 8 * 4 + k % 8 / 2; (k, column) of b in column * 4 + ...
  double left[2][16];  // Rows group and group + 8.
  double right[2][16];
  for (unsigned k = 0; k < 16; ++k) {
    const unsigned in_group = k % 8 / 2;
    for (unsigned i = 0; i < 2; ++i) {
      left[i][k] =
          emulated::half_of(words.lane(emulated::group() * 4 + in_group)[k / 8 * 2 + i], k % 2);
      right[i][k] =
          emulated::half_of(words.lane((emulated::pair() + i) * 4 + in_group)[4 + k / 8], k % 2);
    }
  }
  for (unsigned i = 0; i < 4; ++i) {
    double sum = static_cast<double>(c[i]);
    for (unsigned k = 0; k < 16; ++k) {
      sum += left[i / 2][k] * right[i % 2][k];
    }
    c[i] = static_cast<float>(sum);
  }
}

inline void copy_async(SharedAddress to, const void* from, bool inside) {
  cuda_emulation::copy_later(to, inside ? from : nullptr);
}
inline void commit_copies() { cuda_emulation::commit_copies(); }
template <int pending>
void wait_for_copies() {
  cuda_emulation::wait_for_copies(pending);
}

}  // namespace train::kernels::cuda
