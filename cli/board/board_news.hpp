#pragma once

#include <cstdint>
#include <string>

#include "cli/board/watched_run.hpp"

namespace train::cli {

/// Updates of a run that one browser has not received yet, as server-sent events (WHATWG HTML,
/// 9.2).
class BoardNews {
 public:
  /// Empty: no updates. Counts everything as sent.
  [[nodiscard]] std::string of(const WatchedRun& run);
  /// Event for a run whose directory has disappeared.
  [[nodiscard]] static std::string gone();

 private:
  std::uint64_t status_ = 0, metrics_ = 0, event_ = 0, first_event_ = 1;
};

}  // namespace train::cli
