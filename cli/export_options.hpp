#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace train::cli {

/// actortrain export RUN_DIRECTORY
struct ExportOptions {
  std::string run_directory;
  std::string out;                                ///< A directory to be made.
  std::optional<std::int64_t> step;               ///< Of the checkpoint; none: the newest.
  bool bf16 = false;                              ///< Rounded to bf16 instead of float32.
  std::uint64_t max_file_bytes = 5'000'000'000U;  ///< Of tensors in a file; 1 or more.
};

}  // namespace train::cli
