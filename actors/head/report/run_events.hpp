#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace train::actors {

/// Something that happened to a run, for those who watch it.
struct RunEvent {
  std::string kind;  ///< "rank_lost", "checkpoint_published", ...
  std::string text = {};
  std::optional<std::int64_t> step = {};
  std::optional<double> seconds = {};  ///< How long it took.
  std::optional<std::uint64_t> size_bytes = {};
};

[[nodiscard]] std::filesystem::path events_path(const std::filesystem::path& run);

/// Its line, of JSON, for now.
[[nodiscard]] std::string event_line(const RunEvent& event);

/// Appends a line to `<run>/events.jsonl` (docs/architecture.md): unix_ms, event, and what else the
/// event has. Each line is one write, so that several processes may append. Not durable: the index
/// has what must survive. Thread-safe; blocks. Errors: the file system's, as one line.
[[nodiscard]] Status append_event(const std::filesystem::path& run, const RunEvent& event);

/// The same; a failure is logged.
void note_event(const std::filesystem::path& run, const RunEvent& event);

}  // namespace train::actors
