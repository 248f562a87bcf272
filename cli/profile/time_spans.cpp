#include "cli/profile/time_spans.hpp"

#include <algorithm>
#include <cstddef>

namespace train::cli {

TimeSpans united(TimeSpans spans) {
  std::sort(spans.begin(), spans.end(),
            [](const TimeSpan& a, const TimeSpan& b) { return a.begin_ns < b.begin_ns; });
  TimeSpans result;
  for (const TimeSpan& span : spans) {
    if (span.size_ns() <= 0) {
      continue;
    }
    if (result.empty() || span.begin_ns > result.back().end_ns) {
      result.push_back(span);
    } else {
      result.back().end_ns = std::max(result.back().end_ns, span.end_ns);
    }
  }
  return result;
}

TimeSpans common(const TimeSpans& a, const TimeSpans& b) {
  TimeSpans result;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const TimeSpan both{std::max(a[i].begin_ns, b[j].begin_ns), std::min(a[i].end_ns, b[j].end_ns)};
    if (both.size_ns() > 0) {
      result.push_back(both);
    }
    if (a[i].end_ns < b[j].end_ns) {
      ++i;
    } else {
      ++j;
    }
  }
  return result;
}

TimeSpans without(const TimeSpans& a, const TimeSpans& b) {
  TimeSpans result;
  std::size_t j = 0;
  for (const TimeSpan& span : a) {
    std::int64_t begin = span.begin_ns;
    while (j < b.size() && b[j].end_ns <= begin) {
      ++j;
    }
    for (std::size_t k = j; k < b.size() && b[k].begin_ns < span.end_ns; ++k) {
      if (b[k].begin_ns > begin) {
        result.push_back({begin, b[k].begin_ns});
      }
      begin = std::max(begin, b[k].end_ns);
    }
    if (begin < span.end_ns) {
      result.push_back({begin, span.end_ns});
    }
  }
  return result;
}

std::int64_t total_ns(const TimeSpans& spans) {
  std::int64_t total = 0;
  for (const TimeSpan& span : spans) {
    total += span.size_ns();
  }
  return total;
}

}  // namespace train::cli
