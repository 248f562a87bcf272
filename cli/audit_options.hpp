#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace train::cli {

/// What to do where the run's device is not.
inline constexpr const char* kOtherDevice = "give --device cpu";

/// actortrain replay RUN_DIRECTORY
struct ReplayOptions {
  std::string run_directory;
  std::optional<std::int64_t> from;   ///< First step; none: the one after the newest checkpoint
                                      ///< before `to`. 1 or more, at most `to`.
  std::optional<std::int64_t> to;     ///< Last step; none: the last in the journal.
  std::optional<std::int64_t> ranks;  ///< 1 or more; none: 1, or the run's where bits need that.
  std::optional<std::string> device;  ///< "cpu" or "cuda"; none: the run's.
};

/// actortrain verify RUN_DIRECTORY
struct VerifyOptions {
  std::string run_directory;
};

}  // namespace train::cli
