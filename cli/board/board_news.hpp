#pragma once

#include <cstdint>
#include <string>

#include "cli/board/watched_run.hpp"

namespace train::cli {

/// What one browser does not know yet of a run, as server-sent events (WHATWG HTML, 9.2).
class BoardNews {
 public:
  /// Empty: nothing. All of it counts as told.
  [[nodiscard]] std::string of(const WatchedRun& run);
  /// That the run's directory is no more.
  [[nodiscard]] static std::string gone();

 private:
  std::uint64_t status_ = 0, metrics_ = 0, event_ = 0;
};

}  // namespace train::cli
