#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "storage/files/append_file.hpp"

namespace train::actors {

/// Something that happened to a run, for those who watch it.
struct RunEvent {
  std::string kind;  ///< "rank_lost", "checkpoint_published", ...
  std::string text = {};
  std::optional<std::int64_t> step = {};
  std::optional<double> seconds = {};  ///< How long it took.
  std::optional<std::uint64_t> size_bytes = {};
};

/// A signal asks the run to stop.
[[nodiscard]] RunEvent stop_requested_event(int signal);

[[nodiscard]] std::filesystem::path events_path(const std::filesystem::path& run);

/// Its line, of JSON, for now.
[[nodiscard]] std::string event_line(const RunEvent& event);

/// `<run>/events.jsonl` (docs/architecture.md), a line an event: unix_ms, event, and what else it
/// has. Each line is one write, so that several processes may append. Not durable: the index has
/// what must survive. What cannot be written waits (storage::AppendFile).
/// Threading: note() of any thread; it blocks on the disk.
class EventLog {
 public:
  explicit EventLog(const std::filesystem::path& run);
  void note(const RunEvent& event);

 private:
  std::mutex mutex_;
  storage::AppendFile file_;
};

/// Of a process that has no log of the run's events: appends one, at once or not at all (logged).
void note_event(const std::filesystem::path& run, const RunEvent& event);

}  // namespace train::actors
