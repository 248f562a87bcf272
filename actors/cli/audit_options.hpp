#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace train::actors::cli {

/// actortrain replay RUN_DIRECTORY
struct ReplayOptions {
  std::string run_directory;
  std::optional<std::int64_t> from;   ///< First step; none: the one after the newest checkpoint
                                      ///< before `to`. 1 or more, at most `to`.
  std::optional<std::int64_t> to;     ///< Last step; none: the last in the journal.
  std::optional<std::int64_t> ranks;  ///< 1 or more; none: 1, or the run's where bits need that.
};

/// actortrain verify RUN_DIRECTORY
struct VerifyOptions {
  std::string run_directory;
};

}  // namespace train::actors::cli
