#include "cli/board/board_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/text/log.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / "config.toml", ignored);
}

}  // namespace

Result<BoardRuns> BoardRuns::open(const fs::path& root) {
  std::error_code unreadable;
  fs::path whole = fs::canonical(root, unreadable);
  if (unreadable || !fs::is_directory(whole, unreadable)) {
    return user_error(
        fmt::format("{}: {}; give a run's directory, or the folder of several", root.string(),
                    unreadable == std::errc::no_such_file_or_directory ? "no such directory"
                                                                       : "is not a directory"));
  }
  const bool alone = is_run(whole);
  BoardRuns runs(std::move(whole), alone);
  runs.look_at_folder();
  return runs;
}

void BoardRuns::take(const fs::path& below, std::string name) {
  auto run = std::make_shared<WatchedRun>(storage::Within{.folder = root_, .below = below});
  runs_.emplace(std::move(name), std::move(run));
}

void BoardRuns::look_at_folder() {
  if (alone_) {
    if (runs_.empty()) {
      take({}, root_.filename().string());
    }
    return;
  }
  std::erase_if(runs_, [](const auto& run) { return !is_run(run.second->directory().path()); });
  std::size_t names = 0;
  bool left_out = false;
  std::error_code vanished;
  for (fs::directory_iterator entry(root_, vanished), end; !vanished && entry != end && !left_out;
       entry.increment(vanished)) {
    std::string name = entry->path().filename().string();
    left_out = ++names > kMostNames;
    if (left_out || runs_.contains(name) || !is_run(entry->path())) {
      continue;
    }
    left_out = runs_.size() == kMostRuns;
    if (!left_out) {
      take(entry->path().filename(), std::move(name));
    }
  }
  if (left_out && !std::exchange(left_out_, left_out)) {
    log_warning(fmt::format(
        "runs_left_out {}: more than {} runs or {} names; the board shows those it found first; "
        "give it a folder of fewer",
        root_.string(), kMostRuns, kMostNames));
  }
  left_out_ = left_out;
}

void BoardRuns::look(const Surroundings& here) {
  look_at_folder();
  for (const auto& [name, run] : runs_) {
    run->look(here);
  }
}

std::shared_ptr<WatchedRun> BoardRuns::find(std::string_view name) const {
  if (name.empty()) {
    return runs_.size() == 1 ? runs_.begin()->second : nullptr;
  }
  const auto found = runs_.find(name);
  return found == runs_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<WatchedRun>> BoardRuns::all() const {
  std::vector<std::shared_ptr<WatchedRun>> all;
  std::transform(runs_.begin(), runs_.end(), std::back_inserter(all),
                 [](const auto& run) { return run.second; });
  return all;
}

std::string BoardRuns::json() const {
  std::string text = "{\"runs\":[";
  const char* comma = "";
  for (const auto& [name, run] : runs_) {
    text += comma + run->summary_json();
    comma = ",";
  }
  return text + (left_out_ ? "],\"left_out\":true}" : "]}");
}

std::string BoardRuns::open_metrics() const {
  std::vector<RunGauges> gauges;
  std::transform(runs_.begin(), runs_.end(), std::back_inserter(gauges),
                 [](const auto& run) { return run.second->gauges(); });
  return open_metrics_text(gauges);
}

}  // namespace train::cli
