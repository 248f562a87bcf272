#include "cli/board/board_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "cli/checkpoints/stored_run.hpp"

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
    return user_error(fmt::format(
        "{}: is no directory; give a run's directory, or the folder of several", root.string()));
  }
  const bool alone = is_run(whole);
  BoardRuns runs(std::move(whole), alone);
  runs.look_at_folder();
  return runs;
}

void BoardRuns::look_at_folder() {
  std::set<std::string> there;
  if (alone_) {
    const std::string name = root_.filename().string();
    there.insert(name);
    if (!runs_.contains(name)) {
      runs_.emplace(name, std::make_shared<WatchedRun>(root_));
    }
    return;
  }
  std::error_code vanished;
  for (fs::directory_iterator entry(root_, vanished), end; !vanished && entry != end;
       entry.increment(vanished)) {
    if (!is_run(entry->path())) {
      continue;
    }
    std::string name = entry->path().filename().string();
    if (!runs_.contains(name)) {
      runs_.emplace(name, std::make_shared<WatchedRun>(entry->path()));
    }
    there.insert(std::move(name));
  }
  std::erase_if(runs_, [&there](const auto& run) { return !there.contains(run.first); });
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
  return text + "]}";
}

std::string BoardRuns::open_metrics() const {
  std::vector<RunGauges> gauges;
  std::transform(runs_.begin(), runs_.end(), std::back_inserter(gauges),
                 [](const auto& run) { return run.second->gauges(); });
  return open_metrics_text(gauges);
}

}  // namespace train::cli
