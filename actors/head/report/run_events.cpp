#include "actors/head/report/run_events.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/descriptor.hpp"
#include "base/log.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

using Json = nlohmann::ordered_json;
}  // namespace

std::string event_line(const RunEvent& event) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Json json = {{"unix_ms", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
               {"event", event.kind}};
  if (event.step) {
    json["step"] = *event.step;
  }
  if (!event.text.empty()) {
    json["text"] = event.text;
  }
  if (event.seconds) {
    json["seconds"] = *event.seconds;
  }
  if (event.size_bytes) {
    json["size_bytes"] = *event.size_bytes;
  }
  // Texts of the world may be anything; what is no UTF-8 is replaced.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::filesystem::path events_path(const std::filesystem::path& run) { return run / "events.jsonl"; }

Status append_event(const std::filesystem::path& run, const RunEvent& event) {
  const std::filesystem::path path = events_path(run);
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file) {
    return storage::os_error(storage::Access::write, path, errno);
  }
  const std::string line = event_line(event);
  const ssize_t written = ::write(file.get(), line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) {
    return storage::os_error(storage::Access::write, path, written < 0 ? errno : ENOSPC);
  }
  return {};
}

void note_event(const std::filesystem::path& run, const RunEvent& event) {
  if (const Status noted = append_event(run, event); !noted) {
    log_warning(fmt::format("event_not_written {}", noted.error().message));
  }
}

}  // namespace train::actors
