// The instructions of tensor cores as the emulated device has them, against the PTX ISA's tables of
// which element lies in which register of which lane. What only a device runs has to be right
// without a test: these are what it was checked by.
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <limits>
#include <stdexcept>
#include <vector>

#include "kernels/mma.cuh"
#include "tests/cuda_emulation/block.hpp"

namespace cuda_emulation {
namespace {

using namespace train::kernels::cuda;

/// The bits of a bf16 that holds a small integer.
std::uint32_t bf16(int value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U;
}

int value_a(unsigned row, unsigned column) {
  return static_cast<int>((row * 5 + column * 3 + 1) % 23) - 11;
}
int value_b(unsigned row, unsigned column) {
  return static_cast<int>((row * 7 + column * 2 + 3) % 19) - 9;
}

std::uint16_t* shared_halves() { return reinterpret_cast<std::uint16_t*>(dynamic_shared_memory()); }

int product(unsigned row, unsigned column) {
  int sum = 0;
  for (unsigned k = 0; k < 16; ++k) {
    sum += value_a(row, k) * value_b(k, column);
  }
  return sum;
}

/// c[i] of mma.m16n8k16: its row and column.
unsigned row_of_c(unsigned lane, unsigned i) { return lane / 4 + (i < 2 ? 0 : 8); }
unsigned column_of_c(unsigned lane, unsigned i) { return lane % 4 * 2 + i % 2; }

TEST_CASE("emulation: mma.m16n8k16 has its elements where the ISA says", "[cuda][emulation]") {
  std::vector<std::array<float, 4>> sums(32);
  run_grid({1}, {32}, 0, [&] {
    const unsigned lane = lane_index();
    std::uint32_t a[4] = {};
    for (unsigned i = 0; i < 8; ++i) {  // a0 to a7, two in a register, the first in the lower half.
      const unsigned row = lane / 4 + (i < 2 || (i >= 4 && i < 6) ? 0 : 8);
      const unsigned column = lane % 4 * 2 + i % 2 + (i < 4 ? 0 : 8);
      a[i / 2] |= bf16(value_a(row, column)) << (i % 2 * 16);
    }
    std::uint32_t b[2] = {};
    for (unsigned i = 0; i < 4; ++i) {  // b0 to b3.
      const unsigned row = lane % 4 * 2 + i % 2 + (i < 2 ? 0 : 8);
      b[i / 2] |= bf16(value_b(row, lane / 4)) << (i % 2 * 16);
    }
    float c[4] = {1.0F, 2.0F, 3.0F, 4.0F};
    multiply_add(c, a, b[0], b[1]);
    sums[lane] = {c[0], c[1], c[2], c[3]};
  });
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const int expected =
          product(row_of_c(lane, i), column_of_c(lane, i)) + static_cast<int>(i) + 1;
      CHECK(sums[lane][i] == static_cast<float>(expected));
    }
  }
}

TEST_CASE("emulation: ldmatrix hands out rows, and columns when transposed", "[cuda][emulation]") {
  std::vector<std::array<std::uint32_t, 4>> rows(32);
  std::vector<std::array<std::uint32_t, 4>> columns(32);
  run_grid({1}, {32}, 0, [&] {
    const unsigned lane = lane_index();
    for (unsigned i = 0; i < 8; ++i) {  // Lane 8 m + r: row r of matrix m, which lies anywhere.
      shared_halves()[(lane * 5 % 32) * 8 + i] = static_cast<std::uint16_t>(lane * 8 + i);
    }
    wait_for_block();
    std::uint32_t part[4];
    load_matrices(part, lane * 5 % 32 * 16);
    rows[lane] = {part[0], part[1], part[2], part[3]};
    load_matrices_transposed(part, lane * 5 % 32 * 16);
    columns[lane] = {part[0], part[1], part[2], part[3]};
  });
  const auto element = [](unsigned matrix, unsigned row, unsigned column) {
    return (matrix * 8 + row) * 8 + column;
  };
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned group = lane / 4;
    const unsigned pair = lane % 4 * 2;
    for (unsigned m = 0; m < 4; ++m) {
      CHECK(rows[lane][m] == (element(m, group, pair) | element(m, group, pair + 1) << 16U));
      CHECK(columns[lane][m] == (element(m, pair, group) | element(m, pair + 1, group) << 16U));
    }
  }
}

TEST_CASE("emulation: a copy is not there before it has been waited for", "[cuda][emulation]") {
  alignas(16) std::array<std::uint32_t, 4> first = {1, 2, 3, 4};
  alignas(16) std::array<std::uint32_t, 4> second = {5, 6, 7, 8};
  std::vector<std::uint32_t> seen;
  run_grid({1}, {1}, 0, [&] {
    const auto* shared = reinterpret_cast<const std::uint32_t*>(dynamic_shared_memory());
    train::kernels::cuda::copy_async(0, first.data(), true);
    train::kernels::cuda::copy_async(16, first.data(), false);
    train::kernels::cuda::commit_copies();
    train::kernels::cuda::copy_async(32, second.data(), true);
    train::kernels::cuda::commit_copies();
    seen.push_back(shared[0]);
    train::kernels::cuda::wait_for_copies<1>();
    seen.insert(seen.end(), {shared[0], shared[4], shared[8]});
    train::kernels::cuda::wait_for_copies<0>();
    seen.push_back(shared[11]);
  });
  CHECK(seen == std::vector<std::uint32_t>{0xffffffffU, 1, 0, 0xffffffffU, 8});
}

TEST_CASE("emulation: what a device would not do is an error", "[cuda][emulation]") {
  const auto on_a_warp = [](auto body) { run_grid({1}, {32}, 0, body); };
  std::uint32_t part[4];
  CHECK_THROWS_AS(on_a_warp([&] { load_matrices(part, 8); }), std::logic_error);
  CHECK_THROWS_AS(on_a_warp([&] {
                    load_matrices(part,
                                  static_cast<SharedAddress>(cuda_emulation::most_shared_bytes()));
                  }),
                  std::logic_error);
  CHECK_THROWS_AS(on_a_warp([&] {
                    if (lane_index() != 3) {
                      load_matrices(part, 0);
                    }
                  }),
                  std::logic_error);
  CHECK_THROWS_AS(on_a_warp([&] {
                    lane_index() < 16 ? load_matrices(part, 0) : load_matrices_transposed(part, 0);
                  }),
                  std::logic_error);
  alignas(16) std::array<std::byte, 32> memory{};
  CHECK_THROWS_AS(on_a_warp([&] { copy_async(0, memory.data() + 2, true); }), std::logic_error);
}

TEST_CASE("emulation: pairs are rounded to the nearest bf16, and powers are of two",
          "[cuda][emulation]") {
  CHECK(pack_pair(1.0F, -2.0F) == 0xc0003f80U);
  CHECK(pack_pair(std::bit_cast<float>(0x3f808000U), std::bit_cast<float>(0x3f818000U)) ==
        0x3f823f80U);  // Ties to even.
  CHECK(power_of_two(3.0F) == 8.0F);
  CHECK(power_of_two(-std::numeric_limits<float>::infinity()) == 0.0F);
  CHECK(power_of_two(-126.5F) == 0.0F);
}

}  // namespace
}  // namespace cuda_emulation
