#include "cli/board/watched_run.hpp"

#include <fmt/format.h>
#include <simdjson.h>
#include <sys/stat.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

namespace train::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr auto kReplace = Json::error_handler_t::replace;
// Of the end of a file: the newest numbers are there.
constexpr std::uint64_t kEnd = 64U << 10U;

std::string dump(const Json& json) { return json.dump(-1, ' ', false, kReplace); }

/// Resident bytes of a process of this machine; none: it is gone.
std::optional<std::uint64_t> resident_bytes(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmRSS:", 0) == 0) {
      return std::strtoull(line.c_str() + 6, nullptr, 10) << 10U;
    }
  }
  return std::nullopt;
}

/// What the processes of the run hold, each once, where they are on this machine.
Json memory_of(const Json& status, const std::string& host) {
  Json memory = Json::array();
  std::set<std::int64_t> seen;
  for (const Json& rank : status.value("ranks", Json::array())) {
    const std::int64_t pid = rank.value("pid", std::int64_t{0});
    if (rank.value("host", std::string()) != host || !seen.insert(pid).second) {
      continue;
    }
    if (const auto bytes = resident_bytes(pid)) {
      memory.push_back({{"rank", rank.value("rank", 0)}, {"pid", pid}, {"resident_bytes", *bytes}});
    }
  }
  return memory;
}

}  // namespace

WatchedRun::WatchedRun(fs::path run)
    : directory_(std::move(run)),
      name_(directory_.filename().string()),
      event_lines_(directory_ / "events.jsonl") {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  gauges_ = {
      .run = name_, .loss = kUnknown, .val_loss = kUnknown, .grad_norm = kUnknown, .lr = kUnknown};
}

void WatchedRun::look(const Surroundings& here) {
  look_at_status(here);
  look_at_events();
  look_at_newest_numbers();
}

/// Whether a file is another than when it was asked last.
bool WatchedRun::status_changed() {
  struct stat there = {};
  FileState now;
  if (::stat((directory_ / "status.json").c_str(), &there) == 0) {
    now = {.inode = there.st_ino,
           .changed_ns = there.st_mtim.tv_sec * 1'000'000'000 + there.st_mtim.tv_nsec};
  }
  return std::exchange(status_file_, now) != now;
}

// A status is large, and most looks find the one that is known: then only whether its writer lives
// is looked at.
void WatchedRun::look_at_status(const Surroundings& here) {
  if (!status_changed() && seen_ && condition_of(seen_->writer, here) == seen_->condition) {
    return;
  }
  auto view = read_status(directory_, here);
  if (!view) {
    seen_.reset();
    over_ = false;
    condition_ = "unknown";
    gauges_.running = false;
    Json json = {{"run", name_}, {"error", view.error().message}, {"condition", condition_}};
    if (std::string text = dump(json); text != status_) {
      status_ = std::move(text);
      ++status_version_;
    }
    return;
  }
  if (seen_ && seen_->file == view->file && seen_->condition == view->condition) {
    return;
  }
  seen_ = std::move(*view);
  Json json = Json::parse(seen_->file);
  condition_ = condition_name(seen_->condition);
  json["condition"] = condition_;
  json["age_s"] = 0;  // else each look would be news
  over_ = seen_->condition != RunCondition::running;
  gauges_.running = !over_;
  gauges_.step = json.value("step", std::int64_t{0});
  gauges_.steps = json.value("steps", std::int64_t{0});
  gauges_.generation = json.value("generation", std::int64_t{0});
  gauges_.ranks = json.value("ranks_count", std::int64_t{0});
  gauges_.tokens_per_second = json.value("tokens_per_second", 0.0);
  gauges_.written_unix_s = json.value("written_unix_s", std::int64_t{0});
  gauges_.saved_step = json.value("saved", Json::object()).value("step", std::int64_t{-1});
  if (!over_) {
    json["memory"] = memory_of(json, here.host);
  }
  status_ = dump(json);
  ++status_version_;
}

void WatchedRun::look_at_events() {
  const LineTail::Reader reader = {.restart = [this] { events_.clear(); },
                                   .line =
                                       [this](std::string_view line) {
                                         const Json json = Json::parse(line, nullptr, false);
                                         if (!json.is_object()) {
                                           return;  // cut off; the run's own log has it
                                         }
                                         events_.push_back({next_event_++, dump(json)});
                                         if (events_.size() > kMostEvents) {
                                           events_.pop_front();
                                         }
                                       }};
  while (event_lines_.next(reader) == LineTail::More::yes) {
  }
}

bool WatchedRun::read_metrics() {
  if (!metrics_) {
    metrics_ = std::make_unique<RunMetrics>(directory_);
  }
  return metrics_->read_on();
}

// A list of hundreds of runs must not read all of their files.
void WatchedRun::look_at_newest_numbers() {
  const fs::path path = directory_ / "metrics.jsonl";
  std::error_code missing;
  const std::uint64_t size = fs::file_size(path, missing);
  if (missing || size == newest_size_) {
    return;
  }
  newest_size_ = size;
  if (size < newest_read_) {
    newest_read_ = 0;  // a resume has dropped lines
  }
  std::ifstream file(path, std::ios::binary);
  std::string line;
  const bool inside = size - newest_read_ > kEnd;
  if (inside) {
    newest_read_ = size - kEnd;
  }
  file.seekg(static_cast<std::streamoff>(newest_read_));
  if (inside && std::getline(file, line)) {
    newest_read_ += line.size() + 1;  // its beginning is missing
  }
  simdjson::dom::parser parser;
  // A line that is not complete yet is read the next time.
  while (std::getline(file, line) && !file.eof()) {
    newest_read_ += line.size() + 1;
    simdjson::dom::object numbers;
    if (parser.parse(line).get(numbers) != simdjson::SUCCESS) {
      continue;
    }
    for (const auto& [key, gauge] :
         {std::pair{"loss", &RunGauges::loss}, std::pair{"val_loss", &RunGauges::val_loss},
          std::pair{"grad_norm", &RunGauges::grad_norm}, std::pair{"lr", &RunGauges::lr}}) {
      double number = 0.0;
      if (numbers[key].get(number) == simdjson::SUCCESS) {
        gauges_.*gauge = number;
      }
    }
  }
}

RunGauges WatchedRun::gauges() const { return gauges_; }

std::string WatchedRun::summary_json() const {
  Json json = {{"name", name_},
               {"condition", condition_},
               {"step", gauges_.step},
               {"steps", gauges_.steps},
               {"tokens_per_second", gauges_.tokens_per_second},
               {"ranks", gauges_.ranks},
               {"generation", gauges_.generation},
               {"written_unix_s", gauges_.written_unix_s}};
  json["loss"] = gauges_.loss;  // a NaN becomes null
  json["val_loss"] = gauges_.val_loss;
  return dump(json);
}

}  // namespace train::cli
