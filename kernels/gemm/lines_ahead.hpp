#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cpu_support.hpp"

// Software prefetching of products. Results do not depend on it.
namespace train::kernels::cpu {

inline constexpr std::int64_t kCacheLine = 16;  ///< In floats.

/// Elements in memory that are needed soon: rows, `stride` apart.
struct Ahead {
  const float* from = nullptr;
  std::int64_t rows = 0, row_elements = 0, stride = 0;
};

/// Prefetches rows into L2, a few lines per tile: requesting many lines at once would stall the
/// processor. Rows need not be aligned to lines; skipping the partial line at a row's end would
/// make the tile that reads it take three times as long.
class LinesAhead {
 public:
  LinesAhead() = default;
  /// `times`: expected number of calls of prefetch(); more are allowed. `then` comes after `all`.
  LinesAhead(const Ahead& all, std::int64_t times, const Ahead& then = {})
      : then_(then),
        each_time_(
            divide_up(most_lines(all) + most_lines(then), std::max<std::int64_t>(times, 1))) {
    begin(all);
  }

  void prefetch() {
    constexpr int second_level = 2;
    for (std::int64_t i = 0; i < each_time_; ++i) {
      const float* line = next_line();
      if (line == nullptr) {
        return;
      }
      __builtin_prefetch(line, 0, second_level);
    }
  }

  /// Address in the next line; null after the last.
  const float* next_line() {
    if (lines_left_ == 0) {
      if (rows_left_ == 0) {
        begin(std::exchange(then_, {}));
      }
      if (rows_left_ == 0) {
        return nullptr;
      }
      --rows_left_;
      line_ = std::exchange(next_row_, next_row_ + stride_);
      const auto number = reinterpret_cast<std::uintptr_t>(line_) / sizeof(float);
      const auto before = static_cast<std::int64_t>(number % kCacheLine);
      line_ -= before;
      lines_left_ = divide_up(before + row_elements_, kCacheLine);
    }
    --lines_left_;
    return std::exchange(line_, line_ + kCacheLine);
  }

 private:
  static std::int64_t most_lines(const Ahead& all) {
    return all.row_elements == 0
               ? 0
               : all.rows * divide_up(all.row_elements + kCacheLine - 1, kCacheLine);
  }
  void begin(const Ahead& all) {
    next_row_ = all.from;
    stride_ = all.stride;
    row_elements_ = all.row_elements;
    rows_left_ = all.row_elements > 0 ? all.rows : 0;
  }

  Ahead then_;
  const float* line_ = nullptr;
  const float* next_row_ = nullptr;
  std::int64_t stride_ = 0, row_elements_ = 0;
  std::int64_t lines_left_ = 0;  ///< Lines left in the current row.
  std::int64_t rows_left_ = 0, each_time_ = 0;
};

}  // namespace train::kernels::cpu
