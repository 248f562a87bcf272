#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "actors/train/rank_runtime.hpp"
#include "base/result.hpp"

namespace train::cli {

/// Makes `directory`, empty: an earlier profile goes. Blocks.
[[nodiscard]] Status prepare_profile(const std::filesystem::path& directory);

/// Writes what the rank has kept so far to its own file; its actors and streams may still work.
/// Blocks. REQUIRES: start_trace() was called.
[[nodiscard]] Status write_rank_profile(const std::filesystem::path& directory,
                                        const actors::RankRuntime& runtime);

/// Joins the files of `ranks` ranks into trace.json (Chrome's format) and summary.json, and returns
/// the summary as a table. Blocks; waits up to `patience` for files of ranks on other nodes. A rank
/// that left no file (it was killed) is named in the table.
/// Errors: no rank left one; a file that cannot be read or written.
[[nodiscard]] Result<std::string> join_profiles(const std::filesystem::path& directory,
                                                std::int64_t ranks,
                                                std::chrono::milliseconds patience);

}  // namespace train::cli
