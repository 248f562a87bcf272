// Products of warpgroups as the emulated device has them, with operands where the kernels put them
// (kernels/attention/tensor_cores/attention_panels.cuh), against sums in plain integers.
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "kernels/attention/tensor_cores/attention_panels.cuh"
#include "tests/cuda_emulation/block.hpp"

namespace train::kernels::cuda {
namespace {

using cuda_emulation::dynamic_shared_memory;
using cuda_emulation::here;
using cuda_emulation::run_grid;
using cuda_emulation::wait_for_block;

constexpr int threads = 256;
constexpr int rows = 128;  ///< Of the left tile: 64 of each warpgroup.
constexpr int others = 128;

int value_left(int row, int k) { return (row * 5 + k * 3 + 1) % 23 - 11; }
int value_right(int row, int column) { return (row * 7 + column * 2 + 3) % 19 - 9; }

std::uint16_t bf16(int value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U);
}

/// Fills a tile of `count` rows of `columns`, as the threads of the block together.
template <int count, class Value>
void fill(int tile, int columns, const Value& value) {
  std::byte* shared = dynamic_shared_memory() + tile;
  for (int i = static_cast<int>(here().thread.x); i < count * columns; i += threads) {
    const int row = i / columns;
    const int column = i % columns;
    const int place = PanelPlaces<count>::of(row, column / kChunkColumns);
    reinterpret_cast<std::uint16_t*>(shared + place)[column % kChunkColumns] =
        bf16(value(row, column));
  }
}

/// Where c[n][i] of this thread lies in the block's results.
int row_of(int i) {
  const int thread = static_cast<int>(here().thread.x);
  return thread / 32 * 16 + i / 2 * 8 + thread % 32 / 4;
}
int column_of(int n, int i) { return n * 8 + static_cast<int>(here().thread.x) % 4 * 2 + i % 2; }

template <int blocks>
void keep(std::vector<float>& results, const float (&c)[blocks][4]) {
  for (int n = 0; n < blocks; ++n) {
    for (int i = 0; i < 4; ++i) {
      results[static_cast<std::size_t>(row_of(i) * blocks * 8 + column_of(n, i))] = c[n][i];
    }
  }
}

/// results = left right^T of `dim` columns, on top of what was there (1).
template <int dim, int columns>
void multiply_along_rows(std::vector<float>& results) {
  constexpr int right = rows * dim * 2;
  run_grid({1}, {threads}, right + columns * dim * 2, [&] {
    fill<rows>(0, dim, value_left);
    fill<columns>(right, dim, value_right);
    publish_shared();
    wait_for_block();
    float c[columns / 8][4];
    for (auto& sums : c) {
      std::fill(std::begin(sums), std::end(sums), 1.0F);
    }
    const int first = static_cast<int>(here().thread.x) / 128 * 64;
    for (int k = 0; k < dim / 16; ++k) {
      multiply_warpgroup<0>(c, operand_along_rows<rows>(0, first, k),
                            operand_along_rows<columns>(right, 0, k), true);
    }
    commit_products();
    wait_for_products<0>();
    keep(results, c);
  });
}

template <int dim, int columns>
void check_along_rows() {
  std::vector<float> results(std::size_t{rows} * columns);
  multiply_along_rows<dim, columns>(results);
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      int sum = 1;
      for (int k = 0; k < dim; ++k) {
        sum += value_left(row, k) * value_right(column, k);
      }
      CHECK(results[static_cast<std::size_t>(row * columns + column)] == static_cast<float>(sum));
    }
  }
}

TEST_CASE("emulation: wgmma reads both operands along their rows", "[cuda][emulation]") {
  check_along_rows<64, 64>();
  check_along_rows<128, 128>();
}

/// results = left right: the left rows in registers, `dim` columns of the right tile.
template <int dim>
void multiply_down_rows(std::vector<float>& results) {
  run_grid({1}, {threads}, others * dim * 2, [&] {
    fill<others>(0, dim, value_right);
    publish_shared();
    wait_for_block();
    float c[dim / 8][4] = {};
    for (int k = 0; k < others / 16; ++k) {
      std::uint32_t a[4] = {};
      for (int i = 0; i < 4; ++i) {
        const int row = row_of(i % 2 * 2);
        const int column = k * 16 + i / 2 * 8 + static_cast<int>(here().thread.x) % 4 * 2;
        a[i] = bf16(value_left(row, column)) |
               static_cast<std::uint32_t>(bf16(value_left(row, column + 1))) << 16U;
      }
      multiply_warpgroup<1>(c, a, operand_down_rows<others>(0, k), k > 0);
    }
    commit_products();
    wait_for_products<0>();
    keep(results, c);
  });
}

template <int dim>
void check_down_rows() {
  std::vector<float> results(std::size_t{rows} * dim);
  multiply_down_rows<dim>(results);
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < dim; ++column) {
      int sum = 0;
      for (int k = 0; k < others; ++k) {
        sum += value_left(row, k) * value_right(k, column);
      }
      CHECK(results[static_cast<std::size_t>(row * dim + column)] == static_cast<float>(sum));
    }
  }
}

TEST_CASE("emulation: wgmma reads the right operand down its rows", "[cuda][emulation]") {
  check_down_rows<64>();
  check_down_rows<128>();
}

/// Runs `body` on zeros in shared memory.
template <class Body>
void run_on_zeros(const Body& body) {
  run_grid({1}, {threads}, 1 << 15, [&] {
    fill<rows>(0, 64, [](int, int) { return 0; });
    wait_for_block();
    float c[8][4] = {};
    const auto begin = [&c] {
      multiply_warpgroup<0>(c, operand_along_rows<rows>(0, 0, 0),
                            operand_along_rows<rows>(0, 64, 0), true);
    };
    body(c, begin);
  });
}

TEST_CASE("emulation: sums are not there before a product is waited for", "[cuda][emulation]") {
  std::array<float, 2> seen{};
  run_on_zeros([&](float(&c)[8][4], const auto& begin) {
    begin();
    commit_products();
    begin();
    seen[0] = c[3][2];
    commit_products();
    wait_for_products<0>();
    seen[1] = c[3][2];
  });
  CHECK(std::isnan(seen[0]));
  CHECK(seen[1] == 0.0F);
}

TEST_CASE("emulation: a product that half of a warpgroup begins ends the grid",
          "[cuda][emulation]") {
  const auto by_one_warp = [](float(&)[8][4], const auto& begin) {
    if (here().thread.x < 32) {
      begin();
      commit_products();
      wait_for_products<0>();
    }
  };
  CHECK_THROWS_AS(run_on_zeros(by_one_warp), std::logic_error);
  const auto never_waited_for = [](float(&)[8][4], const auto& begin) {
    begin();
    commit_products();
  };
  CHECK_THROWS_AS(run_on_zeros(never_waited_for), std::logic_error);
}

TEST_CASE("emulation: a product of what was copied and not published ends the grid",
          "[cuda][emulation]") {
  const std::vector<uint4> zeros(threads);
  const auto copied = [&](bool published) {
    run_grid({1}, {threads}, 1 << 15, [&] {
      fill<rows>(0, 64, [](int, int) { return 0; });
      copy_async(here().thread.x * 16, &zeros[here().thread.x], true);
      commit_copies();
      wait_for_copies<0>();
      if (published) {
        publish_shared();
      }
      wait_for_block();
      float c[8][4] = {};
      multiply_warpgroup<0>(c, operand_along_rows<rows>(0, 0, 0),
                            operand_along_rows<rows>(0, 64, 0), true);
      commit_products();
      wait_for_products<0>();
    });
  };
  CHECK_NOTHROW(copied(true));
  CHECK_THROWS_AS(copied(false), std::logic_error);
}

}  // namespace
}  // namespace train::kernels::cuda
