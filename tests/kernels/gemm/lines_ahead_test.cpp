#include "kernels/gemm/lines_ahead.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <set>
#include <vector>

namespace train::kernels::cpu::lines_ahead_test {
namespace {

std::uintptr_t line_of(const float* at) {
  return reinterpret_cast<std::uintptr_t>(at) / (kCacheLine * sizeof(float));
}

std::set<std::uintptr_t> lines_of(const Ahead& all) {
  std::set<std::uintptr_t> lines;
  for (std::int64_t row = 0; row < all.rows; ++row) {
    for (std::int64_t i = 0; i < all.row_elements; ++i) {
      lines.insert(line_of(all.from + row * all.stride + i));
    }
  }
  return lines;
}

TEST_CASE("lines ahead: every line that rows have elements in comes once, wherever they begin",
          "[kernels][lines_ahead]") {
  const std::vector<float> memory(4096);
  for (std::int64_t start = 0; start < kCacheLine; ++start) {
    for (const std::int64_t row_elements : {1, 15, 16, 17, 48, 100}) {
      for (const std::int64_t stride : {128, 131}) {
        const Ahead all{.from = memory.data() + start,
                        .rows = 5,
                        .row_elements = row_elements,
                        .stride = stride};
        CAPTURE(start, row_elements, stride);
        LinesAhead ahead(all, 7);
        std::vector<std::uintptr_t> found;
        while (const float* at = ahead.next_line()) {
          found.push_back(line_of(at));
        }
        const std::set<std::uintptr_t> once(found.begin(), found.end());
        REQUIRE(once == lines_of(all));
        REQUIRE(once.size() == found.size());
      }
    }
  }
}

TEST_CASE("lines ahead: as many calls as were announced bring all of them",
          "[kernels][lines_ahead]") {
  const std::vector<float> memory(4096);
  for (const std::int64_t times : {1, 3, 7, 1000}) {
    LinesAhead ahead({.from = memory.data() + 5, .rows = 9, .row_elements = 61, .stride = 100},
                     times);
    for (std::int64_t i = 0; i < times; ++i) {
      ahead.prefetch();
    }
    CAPTURE(times);
    REQUIRE(ahead.next_line() == nullptr);
  }
}

TEST_CASE("lines ahead: other rows come after the first ones", "[kernels][lines_ahead]") {
  const std::vector<float> memory(4096);
  const Ahead first{.from = memory.data(), .rows = 3, .row_elements = 20, .stride = 64};
  const Ahead then{.from = memory.data() + 1000, .rows = 2, .row_elements = 33, .stride = 100};
  LinesAhead all(first, 4, then);
  LinesAhead expected(first, 1);
  while (const float* line = expected.next_line()) {
    REQUIRE(all.next_line() == line);
  }
  expected = LinesAhead(then, 1);
  while (const float* line = expected.next_line()) {
    REQUIRE(all.next_line() == line);
  }
  REQUIRE(all.next_line() == nullptr);
  LinesAhead announced(first, 4, then);
  for (int i = 0; i < 4; ++i) {
    announced.prefetch();
  }
  REQUIRE(announced.next_line() == nullptr);
}

TEST_CASE("lines ahead: of nothing there are none", "[kernels][lines_ahead]") {
  REQUIRE(LinesAhead().next_line() == nullptr);
  const std::vector<float> memory(64);
  LinesAhead empty({.from = memory.data(), .rows = 4, .row_elements = 0, .stride = 16}, 1);
  REQUIRE(empty.next_line() == nullptr);
  empty.prefetch();
}

}  // namespace
}  // namespace train::kernels::cpu::lines_ahead_test
