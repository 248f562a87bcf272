#include "run/directory/run_directory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "base/exit_codes.hpp"
#include "base/text/log.hpp"
#include "base/text/text_output.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/key_changes.hpp"
#include "configs/load_config.hpp"
#include "run/directory/metrics_file.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/rocks_store.hpp"

namespace train::run {
namespace {

namespace fs = std::filesystem;

/// Newest record of the run's configuration in its index; nullopt: none that can be read.
std::optional<ConfigRecord> newest_record(const fs::path& index) {
  std::error_code ignored;
  const auto store = fs::exists(index, ignored)
                         ? storage::RocksStore::open_read_only(index)
                         : Result<std::unique_ptr<storage::RocksStore>>(failure("no index"));
  const auto records =
      store ? read_config_records(**store) : Result<std::vector<ConfigRecord>>(store.error());
  return records && !records->empty() ? std::optional(records->back()) : std::nullopt;
}

/// config.toml is a copy of the run's record: another content than that does nothing.
void warn_of_edits(const RunDirectory& directory) {
  if (!directory.recorded || !directory.recorded->begun) {
    return;
  }
  const auto text = storage::read_file(directory.config_file(), std::uint64_t{1} << 20U);
  if (!text || *text != directory.recorded->text) {
    log_warning(fmt::format(
        "config_edited {}: differs from the run's record; the record is used, and the file is "
        "overwritten: edit the run file instead",
        directory.config_file().string()));
  }
}

/// Ways out for a user whose change of this key is refused.
std::string way_out(const configs::KeyChange& change) {
  return fmt::format(
      "set it back, {}choose another run.name, or start anew with --fresh",
      change.rule() == configs::BetweenStarts::on_request
          ? fmt::format("train on with it by --accept-config {}", change.field->key()) + ", "
          : "");
}

/// " (changed, too: model.experts)": a key may follow from others, which the user has set.
std::string also_changed(std::vector<std::string> paths) {
  constexpr std::size_t kNamed = 4;
  if (paths.size() > kNamed) {
    paths.resize(kNamed);
    paths.emplace_back("...");
  }
  return paths.empty() ? "" : fmt::format(" (changed, too: {})", fmt::join(paths, ", "));
}

/// Changes from the configuration recorded in the index of `directory`, or else in its file, to
/// `config`; sets RunDirectory::sources_before. Errors (user): the file cannot be read; a key that
/// determines the result has changed and is not in `accepted`.
Result<std::vector<configs::KeyChange>> allowed_changes(RunDirectory& directory,
                                                        const configs::RunConfig& config,
                                                        std::span<const std::string> accepted) {
  const fs::path file = directory.config_file();
  const std::optional<ConfigRecord>& recorded = directory.recorded;
  const auto before = recorded ? configs::parse_config(recorded->text, file.string())
                               : configs::load_config(file.string());
  if (!before) {
    return user_error(
        fmt::format("{}; {} is not a run that this version can resume: choose "
                    "another run.name or start anew with --fresh",
                    before.error().message, file.parent_path().string()));
  }
  auto changes = configs::key_changes(*before, config);
  if (before->data.sources != config.data.sources) {
    directory.sources_before = before->data.sources;
  }
  const auto refused = [&accepted](const configs::KeyChange& change) {
    const bool allowed = change.rule() == configs::BetweenStarts::on_request &&
                         std::ranges::count(accepted, change.field->key()) > 0;
    return configs::stays(change.rule()) && !allowed;
  };
  const auto first = std::ranges::find_if(changes, refused);
  if (first == changes.end()) {
    return changes;
  }
  std::vector<std::string> others;
  for (auto other = std::next(first); other != changes.end(); ++other) {
    if (refused(*other)) {
      others.push_back(other->path);
    }
  }
  const auto origin = config.origins.find(first->path);
  const bool ruled = origin != config.origins.end() && origin->second == "rule";
  return user_error(fmt::format("{}: {} was {} so far and is {} now{}{}; {}", file.string(),
                                first->path, first->before_text(), first->now_text(),
                                ruled ? ", by scaling.rule" : "", also_changed(others),
                                way_out(*first)));
}

// The first evaluation, at step 0, is not a step. An unreadable file may have one.
bool metrics_have_steps(const fs::path& root) {
  const auto end = find_metrics_end(root, std::numeric_limits<std::int64_t>::max());
  return !end || end->unreadable || end->newest_step != 0;
}

bool journal_may_have_steps(const fs::path& index) {
  std::error_code error;
  if (!fs::exists(index, error)) {
    return bool(error);
  }
  const auto store = storage::RocksStore::open_read_only(index);
  const auto found = store ? checkpoint::has_steps(**store) : Result<bool>(store.error());
  return !found || *found;
}

bool holds_anything(const fs::path& directory) {
  std::error_code error;
  const bool empty = fs::is_empty(directory, error);
  return error ? error != std::errc::no_such_file_or_directory : !empty;
}

// Unreadable content may be a run's work: it counts as a finished step.
bool may_have_finished_a_step(const fs::path& root, const configs::RunConfig& config) {
  const checkpoint::Locations locations = find_places(root, config.checkpoint.local_dir);
  return holds_anything(locations.project) ||
         (locations.two() && holds_anything(locations.local)) || metrics_have_steps(root) ||
         journal_may_have_steps(root / "index");
}

fs::path free_name(const fs::path& wanted) {
  fs::path candidate = wanted;
  std::error_code ignored;  // Creating the directory reports an unreadable parent.
  for (int number = 2; fs::exists(candidate, ignored); ++number) {
    candidate = wanted;
    candidate += fmt::format("-{}", number);
  }
  return candidate;
}

/// Sets the run in `root`, if there is one, aside under the next free name, which its config.toml
/// then has, too. Returns its directory; empty: there was none. Errors: in use; not writable.
Result<fs::path> set_aside(const fs::path& root) {
  std::error_code error;
  if (!fs::exists(root / "config.toml", error)) {
    return fs::path();
  }
  const auto lock = TRAIN_TRY(lock_run(root));  // Held on while the directory moves.
  const fs::path aside = free_name(root);
  fs::rename(root, aside, error);
  if (error) {
    return user_error(fmt::format("{}: cannot be set aside as {}: {}", root.string(),
                                  aside.string(), error.message()));
  }
  const fs::path file = aside / "config.toml";
  if (auto config = configs::load_config(file.string())) {
    config->run.name = aside.filename().string();
    TRAIN_RETURN_IF_ERROR(storage::write_file_atomically(file, configs::to_toml(*config)));
  }
  return aside;
}

// True for the temporary file of a killed process.
bool is_leftover(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(".config.toml.tmp-") || name.starts_with(".metrics.jsonl.tmp-") ||
         name.starts_with(".run.lock.");
}

// True for files that `actortrain submit` wrote before the run began.
bool is_of_the_job(const fs::path& path) { return path.filename().string().starts_with("slurm-"); }

bool is_foreign(const fs::path& root) {
  std::error_code error;
  if (fs::exists(root / "config.toml", error)) {
    return false;
  }
  for (const auto& entry : fs::directory_iterator(root, error)) {
    if (entry.path().filename() != "run.lock" && !is_leftover(entry.path()) &&
        !is_of_the_job(entry.path())) {
      return true;
    }
  }
  return false;
}

// REQUIRES: the run's lock is held, so that no process is writing these.
Status remove_leftovers(const fs::path& root) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    if (is_leftover(entry.path())) {
      leftovers.push_back(entry.path());
    }
  }
  for (const fs::path& path : leftovers) {
    TRAIN_RETURN_IF_ERROR(storage::remove_tree(path));
  }
  return {};
}

}  // namespace

fs::path profile_directory(const fs::path& root) { return root / "profile"; }

Result<storage::RunLock> lock_run(const fs::path& root) {
  return storage::RunLock::acquire(root, [](const std::string& text) {
    log_error(text);
    finish_output();
    std::_Exit(kExitFailure);  // Pending work must not reach the disk.
  });
}

fs::path run_root(const configs::RunConfig& config) {
  return fs::path(config.run.dir) / config.run.name;
}

Result<RunDirectory> open_run_directory(const configs::RunConfig& config, bool fresh,
                                        std::span<const std::string> accepted) {
  const fs::path root = run_root(config);
  const auto aside = TRAIN_TRY(fresh ? set_aside(root) : Result(fs::path()));
  std::error_code error;
  if (fs::exists(root, error) && !fs::is_directory(root, error)) {
    return user_error(
        fmt::format("{}: is a file, not a run directory; choose another run.name", root.string()));
  }
  const Error foreign = user_error(
      fmt::format("{}: holds files but no run (no config.toml); choose another run.name or run.dir",
                  root.string()));
  // Checked before the lock, so that no file is created in another program's directory.
  if (!fs::exists(root / "run.lock", error) && is_foreign(root)) {
    return foreign;
  }
  TRAIN_RETURN_IF_ERROR(storage::make_directory(root));
  auto lock = TRAIN_TRY(lock_run(root));
  if (is_foreign(root)) {
    return foreign;
  }
  TRAIN_RETURN_IF_ERROR(remove_leftovers(root));
  RunDirectory directory{.root = root, .lock = std::move(lock), .set_aside = aside};
  directory.existed = fs::exists(directory.config_file(), error);
  if (directory.existed) {
    directory.recorded = newest_record(directory.index());
    auto changes = allowed_changes(directory, config, accepted);
    if (changes) {
      warn_of_edits(directory);
      directory.changes = std::move(changes).value();
    } else if (may_have_finished_a_step(root, config)) {
      return changes.error();
    } else {
      log_info(
          fmt::format("run_begun_anew directory={}: no step of it was finished", root.string()));
    }
    return directory;
  }
  TRAIN_RETURN_IF_ERROR(store_config(directory, config));
  return directory;
}

std::int64_t newest_step_in_metrics(const fs::path& root) {
  const auto end = find_metrics_end(root, std::numeric_limits<std::int64_t>::max());
  return end ? end->newest_step : 0;
}

std::string config_text(const RunDirectory& directory, const configs::RunConfig& config) {
  configs::RunConfig stored = config;
  stored.run.name = directory.root.filename().string();  // Makes the file resume this run.
  return configs::to_toml(stored, configs::Origins::shown);
}

Status store_config(const RunDirectory& directory, const configs::RunConfig& config) {
  return storage::write_file_atomically(directory.config_file(), config_text(directory, config));
}

checkpoint::Locations find_places(const std::filesystem::path& run, const std::string& local_dir) {
  const char* slurm = std::getenv("SLURM_TMPDIR");
  return checkpoint::places_of(
      run, checkpoint::local_directory(local_dir, slurm == nullptr ? "" : slurm));
}

}  // namespace train::run
