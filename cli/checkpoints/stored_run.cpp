#include "cli/checkpoints/stored_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <set>
#include <system_error>
#include <utility>

#include "base/text/log.hpp"
#include "base/text/paths.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/save/retention.hpp"
#include "cli/checkpoints/run_paths.hpp"
#include "cli/options.hpp"
#include "configs/load_config.hpp"
#include "engine/optimizer/averaged.hpp"
#include "run/model/model_files.hpp"
#include "storage/files/within.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestConfig = std::uint64_t{1} << 20U;  // As in configs::load_config().

Error no_such_step(const fs::path& checkpoints, std::int64_t step) {
  const auto found = TRAIN_TRY(checkpoint::list_checkpoints(checkpoints));
  std::vector<std::int64_t> steps;
  for (const checkpoint::Candidate& candidate : found) {
    steps.insert(steps.begin(), candidate.step);
  }
  return user_error(
      fmt::format("--step {}: no such checkpoint in {}; there is {}", step, checkpoints.string(),
                  steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "))));
}

bool is_run(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / "config.toml", ignored);
}

/// The run of a checkpoint's directory, RUN/checkpoints/step-00000010, or of its folder; empty: no
/// directory above is a run's.
fs::path run_above(const fs::path& directory) {
  fs::path above = without_slash(directory);
  for (int level = 0; level < 2 && above.has_parent_path(); ++level) {
    above = above.parent_path();
    if (is_run(above)) {
      return above;
    }
  }
  return {};
}

/// Runs below a directory such as runs/, or below the runs/ of one; sorted.
std::set<fs::path> runs_below(const fs::path& directory) {
  std::set<fs::path> found;
  for (const fs::path& folder : {directory, directory / "runs"}) {
    std::error_code ended;
    for (fs::directory_iterator entry(folder, ended), end; !ended && entry != end;
         entry.increment(ended)) {
      if (is_run(entry->path())) {
        found.insert(entry->path());
      }
    }
  }
  return found;
}

}  // namespace

Error not_a_run(const fs::path& directory) {
  std::error_code code;
  if (!fs::exists(directory, code)) {
    const fs::path usual = fs::path("runs") / directory;  // Named as in the run file.
    return user_error(fmt::format(
        "{}: no such directory{}{}", directory.string(),
        code && code != std::errc::no_such_file_or_directory ? ": " + code.message() : "",
        is_run(usual) ? fmt::format("; did you mean \"{}\"?", usual.string()) : ""));
  }
  if (const fs::path run = run_above(directory); !run.empty()) {
    return user_error(fmt::format(
        "{}: lies in a run; give the run, {}, and choose a checkpoint of it by its step",
        directory.string(), run.string()));
  }
  const std::set<fs::path> runs = runs_below(directory);
  const std::string advice =
      runs.empty()       ? "give the directory that `actortrain run` made"
      : runs.size() == 1 ? fmt::format("did you mean \"{}\"?", runs.begin()->string())
                         : fmt::format("give the directory that `actortrain run` made, such as {}",
                                       runs.begin()->string());
  return user_error(
      fmt::format("{}: not a run directory (no config.toml); {}", directory.string(), advice));
}

Result<StoredRun> open_run(const std::string& directory) {
  const StoredRun run{directory};
  std::error_code ignored;
  if (!fs::exists(run.root / "config.toml", ignored) && !fs::is_directory(run.placed(), ignored)) {
    return not_a_run(run.root);
  }
  return run;
}

namespace {

/// Configuration of `run` as it is stored.
Result<configs::RunConfig> read_run_config(const fs::path& run) {
  std::error_code ignored;
  if (!fs::exists(run / "config.toml", ignored)) {
    return not_a_run(run);
  }
  // May be another user's run: the read must not block.
  const auto text =
      TRAIN_TRY(storage::read_within({.folder = run, .below = "config.toml"}, kLargestConfig));
  return configs::parse_config(text, (run / "config.toml").string());
}

}  // namespace

configs::RunConfig as_found(configs::RunConfig config, const fs::path& run) {
  return run::use_run_copy(find_paths(std::move(config), run).config, run);
}

Result<configs::RunConfig> load_run_config(const fs::path& run) {
  return as_found(TRAIN_TRY(read_run_config(run)), run);
}

Result<configs::RunConfig> load_run_with_data(const fs::path& run) {
  FoundPaths found = find_paths(TRAIN_TRY(read_run_config(run)), run);
  if (!found.missing.empty()) {
    return user_error(found.missing);
  }
  for (const std::string& note : found.notes) {
    log_warning(fmt::format("run_paths {}", note));
  }
  return run::use_run_copy(std::move(found.config), run);
}

Error none_yet(const StoredRun& run) {
  return user_error(fmt::format("{}: no checkpoints", run.placed().string()));
}

Status check_average(const configs::RunConfig& config, bool average) {
  if (!average || config.train.ema > 0.0) {
    return {};
  }
  return user_error(
      fmt::format("--ema: run {} keeps no average of its weights (train.ema is 0): leave --ema out",
                  config.run.name));
}

std::string average_prefix(bool average) {
  return average ? fmt::format("optimizer.{}.", engine::kAverageState) : std::string();
}

Result<std::vector<checkpoint::Candidate>> placed_in(const StoredRun& run) {
  auto found = checkpoint::list_checkpoints(run.placed());
  if (found && found->empty()) {
    return none_yet(run);
  }
  return found;
}

namespace {

/// `step`, or for kBestStep that of the best checkpoint.
Result<std::int64_t> resolved(const StoredRun& run, std::int64_t step) {
  if (step != kBestStep) {
    return step;
  }
  const auto view = TRAIN_TRY(checkpoint::view_index(run.index(), run.placed()));
  const std::vector<std::int64_t> best = checkpoint::best_steps(view.entries);
  if (best.empty()) {
    return user_error(fmt::format(
        "{}: none is the best, as no checkpoint in place has a validation loss{}; give its step, "
        "or let the run evaluate where it saves (eval.interval_steps)",
        run.placed().string(),
        view.without_index.empty() ? "" : fmt::format(" ({})", view.without_index)));
  }
  return best.front();
}

}  // namespace

Result<checkpoint::Candidate> placed_at(const StoredRun& run, std::int64_t asked) {
  const auto found = TRAIN_TRY(placed_in(run));
  const std::int64_t step = TRAIN_TRY(resolved(run, asked));
  const auto nearest = std::min_element(found.begin(), found.end(), [&](auto& a, auto& b) {
    return std::abs(a.step - step) < std::abs(b.step - step);
  });
  if (nearest->step != step) {
    return user_error(fmt::format("{}: no checkpoint of step {}; the nearest is step {}",
                                  run.placed().string(), step, nearest->step));
  }
  return *nearest;
}

Result<checkpoint::FoundCheckpoint> find_checkpoint(const StoredRun& run,
                                                    std::optional<std::int64_t> asked,
                                                    checkpoint::Depth depth) {
  if (!asked) {
    auto report = TRAIN_TRY(checkpoint::find_newest_read_only(run.placed()));
    for (const std::string& line : report.set_aside) {
      log_warning(fmt::format("checkpoint_damaged {}", line));
    }
    if (!report.newest) {
      return user_error(
          fmt::format("{}: no checkpoint yet; wait for the first one or lower "
                      "checkpoint.interval_steps; if there was one, put it back",
                      run.placed().string()));
    }
    return *std::move(report.newest);
  }
  const std::int64_t step = TRAIN_TRY(resolved(run, *asked));
  const fs::path path = run.placed() / checkpoint::checkpoint_name(step);
  std::error_code ignored;  // Missing and unreadable are the same to the user.
  if (!fs::is_directory(path, ignored)) {
    return no_such_step(run.placed(), step);
  }
  auto verified = TRAIN_TRY(checkpoint::check_checkpoint(path, depth));
  if (!verified.whole()) {
    return failure(
        fmt::format("{}{}: {}; choose another --step", path.string(),
                    verified.verdict == checkpoint::Verdict::damaged ? "" : " cannot be read",
                    verified.defect));
  }
  return checkpoint::FoundCheckpoint{.candidate = {.step = step, .path = path},
                                     .manifest = *std::move(verified.manifest),
                                     .manifest_digest = verified.manifest_digest};
}

Result<checkpoint::IndexView> look(const StoredRun& run) {
  auto view = checkpoint::view_index(run.index(), run.placed());
  if (view && !view->without_index.empty() && !view->entries.empty()) {
    log_warning(fmt::format("index_not_used {}: showing what the manifests in place say",
                            view->without_index));
  }
  return view;
}

std::uint64_t size_of(const checkpoint::Manifest& manifest) {
  std::uint64_t size = 0;
  for (const checkpoint::FileRecord& file : manifest.files) {
    size += file.size_bytes;
  }
  return size;
}

std::string time_text(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts = {};
  ::localtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace train::cli
