#include "checkpoint/save/retention.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/manifest.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/file_calls.hpp"

namespace train::checkpoint {
namespace {

/// Removes everything hidden for removal, also by an earlier failed retirement.
Status remove_hidden(const std::filesystem::path& checkpoints) {
  auto names = TRAIN_TRY(storage::entry_names(checkpoints));
  std::erase_if(names, [](const std::string& name) { return !name.starts_with(".retired-"); });
  if (!names.empty()) {  // Not before the rename is durable: half a checkpoint could come back.
    TRAIN_RETURN_IF_ERROR(storage::fsync_directory(checkpoints));
  }
  for (const std::string& name : names) {
    TRAIN_RETURN_IF_ERROR(storage::remove_tree(checkpoints / name));
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> best_steps(std::span<const IndexEntry> entries, std::int64_t count) {
  std::vector<std::pair<double, std::int64_t>> evaluated;  // The earlier of equal losses is less.
  for (const IndexEntry& entry : entries) {
    if (entry.state == CheckpointState::committed && entry.validation_loss &&
        !std::isnan(*entry.validation_loss)) {
      evaluated.emplace_back(*entry.validation_loss, entry.step);
    }
  }
  std::sort(evaluated.begin(), evaluated.end());
  std::vector<std::int64_t> steps;
  for (const auto& [loss, step] : evaluated) {
    if (std::ssize(steps) < count) {
      steps.push_back(step);
    }
  }
  return steps;
}

std::vector<std::int64_t> to_retire(std::span<const IndexEntry> committed,
                                    const RetentionRule& rule) {
  std::vector<std::int64_t> retired;
  if (rule.keep_last <= 0) {
    return retired;
  }
  const std::vector<std::int64_t> best = best_steps(committed, rule.keep_best);
  const std::int64_t old = std::ssize(committed) - rule.keep_last;
  for (const IndexEntry& entry :
       committed.first(static_cast<std::size_t>(std::max<std::int64_t>(old, 0)))) {
    const bool landmark = rule.keep_every > 0 && entry.step % rule.keep_every == 0;
    const bool may_be_best = rule.keep_best > 0 && entry.rebuilt && !entry.validation_loss;
    const bool is_best = std::find(best.begin(), best.end(), entry.step) != best.end();
    if (!landmark && !may_be_best && !is_best) {
      retired.push_back(entry.step);
    }
  }
  return retired;
}

Status retire(const std::filesystem::path& checkpoints, std::int64_t step,
              const RunIdentity& identity) {
  const std::string name = checkpoint_name(step);
  if (!identity.id.empty() && !is_gone(checkpoints / name)) {
    const auto found = examine_manifest(checkpoints / name);
    if (found && found->manifest && !found->manifest->fields.run_id.empty()) {
      TRAIN_RETURN_IF_ERROR(check_identity(checkpoints / name, *found->manifest, identity));
    }
  }
  std::error_code code;
  if (std::filesystem::exists(std::filesystem::symlink_status(checkpoints / name, code))) {
    // A unique name: an earlier crash may have left the plain one.
    auto hidden = checkpoints / fmt::format(".retired-{}-{}", ::getpid(), name);
    for (int serial = 1; std::filesystem::exists(std::filesystem::symlink_status(hidden, code));
         ++serial) {
      hidden = checkpoints / fmt::format(".retired-{}.{}-{}", ::getpid(), serial, name);
    }
    storage::file_point("retire", hidden);
    // Another node with the same local place may have been first.
    if (storage::disk_rename(checkpoints / name, hidden) != 0 && errno != ENOENT) {
      return storage::os_error(storage::Access::write, checkpoints / name, errno);
    }
  }
  return remove_hidden(checkpoints);
}

}  // namespace train::checkpoint
