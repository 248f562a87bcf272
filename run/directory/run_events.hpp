#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "storage/files/append_file.hpp"

namespace train::run {

/// Event of a run, for observers.
struct RunEvent {
  std::string kind;                        ///< "rank_lost", "checkpoint_published", ...
  std::optional<std::int64_t> index = {};  ///< Index of a sampled text's prompt.
  std::optional<std::string> prompt = {};  ///< Prompt of a sampled text, `text`.
  std::string text = {};
  std::optional<std::int64_t> step = {};
  std::optional<double> seconds = {};  ///< Duration.
  std::optional<std::uint64_t> size_bytes = {};
};

/// Kind of an event that carries a text sampled while the run trains.
inline constexpr const char* kSampledEvent = "sampled";

/// A text of such an event.
struct SampledText {
  std::int64_t step = 0;
  std::optional<std::int64_t> index = {};  ///< As in the event.
  std::string prompt;
  std::string text;

  friend auto operator<=>(const SampledText&, const SampledText&) = default;
};

/// Texts that events.jsonl of the run has of `first_step` and later steps; unreadable lines, and a
/// file that cannot be read, have none. Reads all of the file. Blocks.
[[nodiscard]] std::vector<SampledText> sampled_texts(const std::filesystem::path& run,
                                                     std::int64_t first_step);

/// Event of a signal that asks the run to stop.
[[nodiscard]] RunEvent stop_requested_event(int signal);

[[nodiscard]] std::filesystem::path events_path(const std::filesystem::path& run);

/// JSON line of the event, with the present time.
[[nodiscard]] std::string event_line(const RunEvent& event);

/// The file `<run>/events.jsonl` (docs/architecture.md), a line per event: unix_ms, event, and the
/// event's other fields. Each line is one write, so that several processes may append. Not durable:
/// the index keeps the events that must survive. Lines that cannot be written are queued
/// (storage::AppendFile). Threading: note() from any thread; it blocks on the disk.
class EventLog {
 public:
  explicit EventLog(const std::filesystem::path& run);
  void note(const RunEvent& event);

 private:
  std::mutex mutex_;
  storage::AppendFile file_;
};

/// Appends an event without an EventLog of the run; a failure is logged and not retried.
void note_event(const std::filesystem::path& run, const RunEvent& event);

}  // namespace train::run
