#pragma once

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/integration/sites/run_site.hpp"

// Readers of events.jsonl and metrics.jsonl while a run is under way, with which a test waits for
// kinds of events and for steps, whatever the words of the log are.
namespace train::test {

/// The lines of a file that grows; half of a last one does not count. None: there is no file yet.
inline std::vector<nlohmann::json> whole_lines(const fs::path& file) {
  const std::string text = fs::exists(file) ? read_bytes(file) : "";
  std::vector<nlohmann::json> lines;
  for (const std::string& line : lines_of(text.substr(0, text.rfind('\n') + 1))) {
    INFO(file.string() << ": " << line);
    lines.push_back(nlohmann::json::parse(line, nullptr, false));
    REQUIRE(lines.back().is_object());
  }
  return lines;
}

/// The events of all starts of a run, oldest first (docs/watching.md).
inline std::vector<nlohmann::json> events_of(const fs::path& run) {
  return whole_lines(run / "events.jsonl");
}

/// The events of one kind.
inline std::vector<nlohmann::json> events_of(const fs::path& run, std::string_view kind) {
  std::vector<nlohmann::json> events = events_of(run);
  std::erase_if(events, [kind](const nlohmann::json& event) { return event.at("event") != kind; });
  return events;
}

/// How many events of a kind there are, of all starts of a run.
inline std::size_t count_events(const fs::path& run, std::string_view kind) {
  return events_of(run, kind).size();
}

/// Waits until a run has `count` events of a kind, those of earlier starts among them. False: its
/// process has ended without.
inline bool event_comes(const fs::path& run, Process& process, std::string_view kind,
                        std::size_t count = 1) {
  return process.until([&] { return count_events(run, kind) >= count; });
}

/// Waits for the events, and fails the test if the process ends without them.
inline void wait_for_event(const fs::path& run, Process& process, std::string_view kind,
                           std::size_t count = 1) {
  const bool came = event_comes(run, process, kind, count);
  INFO("no " << kind << ": " << process.err());
  REQUIRE(came);
}
inline void wait_for_event(const RunSite& site, Process& process, std::string_view kind,
                           std::size_t count = 1) {
  wait_for_event(site.run(), process, kind, count);
}

/// The end of a file, long enough for some lines; empty: there is none. A run that goes on writes
/// thousands, and a test that waits looks often.
inline std::string file_end(const fs::path& path) {
  constexpr std::streamoff kBytes = 16384;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return {};
  }
  const std::streamoff size = file.tellg();
  std::string text(static_cast<std::size_t>(std::min(size, kBytes)), '\0');
  file.seekg(size - static_cast<std::streamoff>(text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

/// The newest step of metrics.jsonl; 0: there is none. The run may be under way: half of a last
/// line does not count.
inline std::int64_t last_step(const fs::path& run) {
  const std::string text = file_end(run / "metrics.jsonl");
  const std::size_t end = text.rfind('\n');
  if (end == std::string::npos) {
    return 0;
  }
  const std::size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const std::string line = text.substr(before + 1, end - before - 1);
  return nlohmann::json::parse(line).at("step").get<std::int64_t>();
}

/// Waits until the metrics of a run have a step. False: its process has ended without. A start that
/// resumes has done it itself if it is newer than the last step before: `last_step() + 1`.
inline bool step_comes(const fs::path& run, Process& process, std::int64_t step) {
  return process.until([&] { return last_step(run) >= step; });
}

/// Waits for the step, and fails the test if the process ends without it.
inline void wait_for_step(const fs::path& run, Process& process, std::int64_t step) {
  const bool came = step_comes(run, process, step);
  INFO("no step " << step << ": " << process.err());
  REQUIRE(came);
}
inline void wait_for_step(const RunSite& site, Process& process, std::int64_t step) {
  wait_for_step(site.run(), process, step);
}

}  // namespace train::test
