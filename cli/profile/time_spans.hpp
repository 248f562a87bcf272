#pragma once

#include <cstdint>
#include <vector>

namespace train::cli {

/// [begin, end) in nanoseconds.
struct TimeSpan {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  [[nodiscard]] std::int64_t size_ns() const { return end_ns - begin_ns; }
};

/// Spans in order that neither overlap nor are empty.
using TimeSpans = std::vector<TimeSpan>;

/// The time that any of `spans` covers; they come in any order and may overlap.
[[nodiscard]] TimeSpans united(TimeSpans spans);
/// The time that both cover, or `a` without `b`.
[[nodiscard]] TimeSpans common(const TimeSpans& a, const TimeSpans& b);
[[nodiscard]] TimeSpans without(const TimeSpans& a, const TimeSpans& b);
[[nodiscard]] std::int64_t total_ns(const TimeSpans& spans);

}  // namespace train::cli
