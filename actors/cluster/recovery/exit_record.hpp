#pragma once

#include <filesystem>
#include <optional>
#include <string>

// How the head's end reaches launchers of other nodes that were not in touch with it: one that
// comes late, or finds that the head had nothing to do. It is a file of the run's control
// directory, which all nodes share, and holds for one start of the launchers alone
// (NodePosition::start).
namespace train::actors {

/// At the head's start, before any other launcher can take an older word for its own. Blocks.
void forget_exit_record(const std::filesystem::path& root);

/// At the head's end, which is that of the run in `root`. Blocks. What cannot be written is a
/// warning: the others then wait for as long as they do for a head that is lost.
void leave_exit_record(const std::filesystem::path& root, const std::string& start, int exit_code);

/// The exit code that the head of `start` has left; none: none yet, or one of another start.
/// Blocks.
[[nodiscard]] std::optional<int> exit_record(const std::filesystem::path& root,
                                             const std::string& start);

}  // namespace train::actors
