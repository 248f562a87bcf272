#include "cli/board/watched_run.hpp"

#include <fmt/format.h>
#include <simdjson.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/save/retention.hpp"
#include "cli/report/untrusted_json.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr auto kReplace = Json::error_handler_t::replace;
// Reads only the end of the files, where the newest events and numbers are: a list may have
// thousands of runs.
constexpr storage::LineTail::Limits kEventLines = {.line_bytes = std::size_t{64} << 10U,
                                                   .newest_bytes = std::uint64_t{1} << 20U};
// A line with the loads of 64 layers of 256 experts, and another that is being written.
constexpr storage::LineTail::Limits kNewestLines = {.line_bytes = std::size_t{128} << 10U,
                                                    .newest_bytes = std::uint64_t{256} << 10U};
// Some shared file systems notice a file replaced by another machine only when it is opened.
constexpr auto kOpenAfter = std::chrono::seconds(5);
// A run with large, constantly changing files must not take the others' time.
constexpr auto kLongLook = std::chrono::milliseconds(50);
constexpr int kRestPerLook = 20;
constexpr std::size_t kMostCheckpointNames = 4096;

std::string dump(const Json& json) { return json.dump(-1, ' ', false, kReplace); }

/// Resident bytes of a process of this machine; nullopt: it has ended.
std::optional<std::uint64_t> resident_bytes(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmRSS:", 0) == 0) {
      return std::strtoull(line.c_str() + 6, nullptr, 10) << 10U;
    }
  }
  return std::nullopt;
}

/// Memory of the run's processes on this machine, each counted once.
Json memory_of(const Json& status, const std::string& host) {
  Json memory = Json::array();
  std::set<std::int64_t> seen;
  for (const Json& rank : status.value("ranks", Json::array())) {
    const std::int64_t pid = rank.value("pid", std::int64_t{0});
    if (rank.value("host", std::string()) != host || !seen.insert(pid).second) {
      continue;
    }
    if (const auto bytes = resident_bytes(pid)) {
      memory.push_back({{"rank", rank.value("rank", std::int64_t{0})},
                        {"pid", pid},
                        {"resident_bytes", *bytes}});
    }
  }
  return memory;
}

/// Identity and last change of a file or directory; default: there is none.
FileState state_of(const fs::path& path) {
  struct stat there = {};
  if (::stat(path.c_str(), &there) != 0) {
    return {};
  }
  return {.inode = there.st_ino,
          .changed_ns = there.st_mtim.tv_sec * 1'000'000'000 + there.st_mtim.tv_nsec};
}

/// Steps of the checkpoints at `place`, in order; empty where a link leads out of its folder.
std::vector<std::int64_t> checkpoint_steps(const storage::Within& place) {
  std::vector<std::int64_t> steps;
  std::error_code gone;
  const fs::path folder = fs::canonical(place.folder, gone);
  const fs::path whole = fs::canonical(place.path(), gone);
  if (gone || std::mismatch(folder.begin(), folder.end(), whole.begin(), whole.end()).first !=
                  folder.end()) {
    return steps;
  }
  std::size_t names = 0;
  for (fs::directory_iterator entry(whole, gone), end;
       !gone && entry != end && names < kMostCheckpointNames; entry.increment(gone), ++names) {
    if (const auto step = checkpoint::checkpoint_step(entry->path().filename().string())) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace

WatchedRun::WatchedRun(storage::Within run)
    : directory_(std::move(run)),
      name_(directory_.path().filename().string()),
      event_lines_(directory_ / "events.jsonl", kEventLines),
      newest_lines_(directory_ / "metrics.jsonl", kNewestLines) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  gauges_ = {
      .run = name_, .loss = kUnknown, .val_loss = kUnknown, .grad_norm = kUnknown, .lr = kUnknown};
}

void WatchedRun::look(const Surroundings& here) {
  if (here.now < rest_until_) {
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  look_at_events();
  look_at_newest_numbers();
  look_at_status(here);
  if (const auto spent = std::chrono::steady_clock::now() - begin; spent > kLongLook) {
    rest_until_ = here.now + kRestPerLook * spent;
  }
}

// Avoids parsing the large status if it is unchanged: then only checks that its writer lives.
bool WatchedRun::status_is_known(const Surroundings& here) {
  const FileState now = state_of((directory_ / "status.json").path());
  if (std::exchange(status_file_, now) != now || !seen_) {
    return false;
  }
  const bool elsewhere = seen_->writer.host != here.host;
  return (!elsewhere || seen_->condition != RunCondition::running ||
          here.now - status_read_ < kOpenAfter) &&
         condition_of(seen_->writer, here, watch_) == seen_->condition;
}

void WatchedRun::look_at_status(const Surroundings& here) {
  const storage::Within checkpoints = directory_ / "checkpoints";
  if (const FileState now = state_of(checkpoints.path());
      std::exchange(checkpoints_file_, now) != now) {
    checkpoints_ = checkpoint_steps(checkpoints);
  }
  Json beside = {{"checkpoints", checkpoints_}, {"problems", problems()}};
  add_losses(beside);
  const bool same = beside == beside_;
  beside_ = std::move(beside);
  if (status_is_known(here) && same) {
    return;
  }
  status_read_ = here.now;
  auto view = read_status(directory_, here, watch_);
  if (!view) {
    return show_error(view.error().message);
  }
  if (seen_ && seen_->file == view->file && seen_->condition == view->condition && same) {
    return;
  }
  seen_ = std::move(*view);
  show_status(here);
}

/// Adds the loss of each checkpoint, and the best one.
void WatchedRun::add_losses(Json& beside) const {
  if (metrics_ == nullptr) {
    return;
  }
  std::vector<checkpoint::IndexEntry> entries;
  for (const std::int64_t step : checkpoints_) {
    const auto loss = metrics_->validation_losses().find(step);
    checkpoint::IndexEntry& entry = entries.emplace_back();
    entry.step = step;
    if (loss != metrics_->validation_losses().end()) {
      entry.validation_loss = loss->second;
    }
    beside["validation_losses"].push_back(entry.validation_loss ? Json(*entry.validation_loss)
                                                                : Json());
  }
  if (const auto best = checkpoint::best_steps(entries); !best.empty()) {
    beside["best_checkpoint"] = best.front();
  }
}

void WatchedRun::say(std::string status) {
  if (status != status_) {
    status_ = std::move(status);
    ++status_version_;
  }
}

void WatchedRun::show_error(const std::string& message) {
  seen_.reset();
  error_ = message;
  condition_ = "unknown";
  gauges_.running = false;
  Json json = {{"run", name_}, {"error", message}, {"condition", condition_}};
  json.update(beside_);
  say(dump(json));
}

void WatchedRun::show_status(const Surroundings& here) {
  Json json = Json::parse(seen_->file);  // Validated when it was read.
  error_.clear();
  condition_ = condition_name(seen_->condition);
  json["condition"] = condition_;
  json["age_s"] = 0;  // Otherwise each look would be a change.
  json.update(beside_);
  gauges_.running = seen_->condition == RunCondition::running;
  gauges_.step = json.value("step", std::int64_t{0});
  gauges_.steps = json.value("steps", std::int64_t{0});
  gauges_.generation = json.value("generation", std::int64_t{0});
  gauges_.ranks = json.value("ranks_count", std::int64_t{0});
  gauges_.tokens_per_second = json.value("tokens_per_second", 0.0);
  gauges_.written_unix_s = json.value("written_unix_s", std::int64_t{0});
  gauges_.saved_step = json.value("saved", Json::object()).value("step", std::int64_t{-1});
  if (gauges_.running) {
    json["memory"] = memory_of(json, here.host);
  }
  say(dump(json));
}

std::vector<std::string> WatchedRun::problems() const {
  std::vector<std::string> problems;
  for (const storage::LineTail* lines : {&event_lines_, &newest_lines_}) {
    if (!lines->problem().empty()) {
      problems.push_back(lines->problem());
    }
  }
  if (const std::uint64_t lines = damaged_events_ + event_lines_.skipped_lines(); lines > 0) {
    problems.push_back(fmt::format("{}: {} lines are damaged or longer than {} bytes",
                                   (directory_ / "events.jsonl").path().string(), lines,
                                   kEventLines.line_bytes));
  }
  return problems;
}

void WatchedRun::take_event(std::string_view line) {
  const auto json = parse_untrusted_json(line, kLineLimits);
  if (!json || !json->is_object()) {
    ++damaged_events_;
    return;
  }
  events_.push_back({next_event_++, dump(*json)});
  event_bytes_ += events_.back().json.size();
  while (events_.size() > kMostEvents || event_bytes_ > kMostEventBytes) {
    event_bytes_ -= events_.front().json.size();
    events_.pop_front();
  }
}

void WatchedRun::look_at_events() {
  event_lines_.next({.restart =
                         [this] {
                           events_.clear();
                           first_event_ = next_event_;
                           event_bytes_ = 0;
                           damaged_events_ = 0;
                         },
                     .line = [this](std::string_view line) { take_event(line); }});
}

bool WatchedRun::read_metrics() {
  if (!metrics_) {
    metrics_ = std::make_unique<RunMetrics>(directory_);
  }
  return metrics_->read_on();
}

void WatchedRun::look_at_newest_numbers() {
  newest_lines_.next({.restart =
                          [this] {
                            gauges_.loss = gauges_.val_loss = gauges_.grad_norm = gauges_.lr =
                                std::numeric_limits<double>::quiet_NaN();
                          },
                      .line = [this](std::string_view line) { take_numbers(line); }});
}

void WatchedRun::take_numbers(std::string_view line) {
  simdjson::dom::parser parser;
  simdjson::dom::object numbers;
  // The line is followed by padding (storage::LineTail::kPadding), so it need not be copied.
  if (parser.parse(line.data(), line.size(), false).get(numbers) != simdjson::SUCCESS) {
    return;  // Counted by read_metrics().
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
  json["loss"] = gauges_.loss;  // NaN becomes null.
  json["val_loss"] = gauges_.val_loss;
  if (!error_.empty()) {
    json["error"] = error_;
  }
  return dump(json);
}

}  // namespace train::cli
