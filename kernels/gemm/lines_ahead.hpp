#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cpu_support.hpp"

// What products bring near before they read it. No result depends on it.
namespace train::kernels::cpu {

inline constexpr std::int64_t kCacheLine = 16;  ///< Of floats.

/// Elements in memory that are needed soon: rows of so many elements, `stride` apart. They are
/// brought into the second-level cache.
struct Ahead {
  const float* from = nullptr;
  std::int64_t rows = 0, row_elements = 0, stride = 0;

  /// One of `parts` parts at once.
  void prefetch(std::int64_t part, std::int64_t parts) const {
    for (std::int64_t i = rows * part / parts; i < rows * (part + 1) / parts; ++i) {
      for (std::int64_t j = 0; j < row_elements; j += kCacheLine) {
        prefetch_line(from + i * stride + j);
      }
    }
  }
  static void prefetch_line(const float* at) {
    constexpr int second_level = 2;
    __builtin_prefetch(at, 0, second_level);
  }
};

/// The same a few lines at a time, from sum to sum of the tiles: of many lines from memory at once
/// a processor would wait for some.
class LinesAhead {
 public:
  LinesAhead() = default;
  /// `times`: how often prefetch() will be called; more are allowed.
  LinesAhead(const Ahead& all, std::int64_t times)
      : line_(all.from),
        next_row_(all.from + all.stride),
        stride_(all.stride),
        row_lines_(divide_up(all.row_elements, kCacheLine)),
        left_in_row_(row_lines_),
        left_(all.rows * row_lines_),
        each_time_(divide_up(left_, std::max<std::int64_t>(times, 1))) {}

  void prefetch() {
    const std::int64_t lines = std::min(each_time_, left_);
    left_ -= lines;
    for (std::int64_t i = 0; i < lines; ++i) {
      Ahead::prefetch_line(line_);
      line_ += kCacheLine;
      if (--left_in_row_ == 0) {
        line_ = std::exchange(next_row_, next_row_ + stride_);
        left_in_row_ = row_lines_;
      }
    }
  }

 private:
  const float* line_ = nullptr;
  const float* next_row_ = nullptr;
  std::int64_t stride_ = 0, row_lines_ = 0, left_in_row_ = 0, left_ = 0, each_time_ = 0;
};

}  // namespace train::kernels::cpu
