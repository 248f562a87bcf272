#include "run/directory/run_events.hpp"

#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace train::run {
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
  if (event.index) {
    json["index"] = *event.index;
  }
  if (event.prompt) {
    json["prompt"] = *event.prompt;
  }
  if (event.prompt || !event.text.empty()) {
    json["text"] = event.text;
  }
  if (event.seconds) {
    json["seconds"] = *event.seconds;
  }
  if (event.size_bytes) {
    json["size_bytes"] = *event.size_bytes;
  }
  // External text may be anything; invalid UTF-8 is replaced.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<SampledText> sampled_texts(const std::filesystem::path& run, std::int64_t first_step) {
  std::vector<SampledText> texts;
  std::ifstream file(events_path(run));
  for (std::string line; std::getline(file, line);) {
    if (line.find(kSampledEvent) == std::string::npos) {
      continue;
    }
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto has = [&json](const char* key, auto is) {
      return json.contains(key) && (json[key].*is)();
    };
    if (json.is_object() && json.value("event", Json()) == kSampledEvent &&
        has("step", &Json::is_number_integer) && has("prompt", &Json::is_string) &&
        has("text", &Json::is_string) && json["step"] >= first_step) {
      texts.push_back({.step = json["step"],
                       .index = has("index", &Json::is_number_integer)
                                    ? std::optional<std::int64_t>(json["index"])
                                    : std::nullopt,
                       .prompt = json["prompt"],
                       .text = json["text"]});
    }
  }
  return texts;
}

RunEvent stop_requested_event(int signal) {
  return {.kind = "stop_requested", .text = std::string("SIG") + sigabbrev_np(signal)};
}

std::filesystem::path events_path(const std::filesystem::path& run) { return run / "events.jsonl"; }

EventLog::EventLog(const std::filesystem::path& run)
    : file_(events_path(run), storage::HalfRecord::begin_line) {}

void EventLog::note(const RunEvent& event) {
  const std::string line = event_line(event);
  const std::lock_guard lock(mutex_);
  file_.append(line);
}

void note_event(const std::filesystem::path& run, const RunEvent& event) {
  EventLog(run).note(event);
}

}  // namespace train::run
