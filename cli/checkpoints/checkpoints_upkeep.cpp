#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/exit_codes.hpp"
#include "base/units.hpp"
#include "checkpoint/index/index.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/retention.hpp"
#include "cli/checkpoints/checkpoints_actions.hpp"
#include "cli/trained_model.hpp"
#include "configs/run_config.hpp"
#include "storage/files/file_lock.hpp"

namespace train::cli::checkpoints {
namespace {

using checkpoint::CheckpointState;
using checkpoint::IndexEntry;

/// The run's own rule, as far as the command line does not say otherwise.
Result<checkpoint::RetentionRule> rule_of(const Run& run, const CheckpointsOptions& options) {
  checkpoint::RetentionRule rule{.keep_last = options.keep_last.value_or(0),
                                 .keep_every = options.keep_every.value_or(0),
                                 .keep_best = options.keep_best.value_or(0)};
  if (options.keep_last && options.keep_every && options.keep_best) {
    return rule;  // The run file need not even be readable.
  }
  const auto config = load_run_config(run.root);
  if (!config) {
    return config.error();
  }
  rule.keep_last = options.keep_last.value_or(config->checkpoint.keep_last);
  rule.keep_every = options.keep_every.value_or(config->checkpoint.keep_every);
  rule.keep_best = options.keep_best.value_or(config->checkpoint.keep_best);
  if (rule.keep_last == 0) {
    return user_error(
        fmt::format("{}: checkpoint.keep_last is 0, so all checkpoints stay; give --keep-last N",
                    run.root.string()));
  }
  return rule;
}

std::vector<IndexEntry> committed_in(const std::vector<IndexEntry>& entries) {
  std::vector<IndexEntry> committed;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(committed),
               [](const IndexEntry& entry) { return entry.state == CheckpointState::committed; });
  return committed;
}

std::string summary(std::string_view verb, const std::vector<IndexEntry>& committed,
                    const std::vector<std::int64_t>& gone) {
  std::uint64_t size = 0;
  for (const IndexEntry& entry : committed) {
    size += std::binary_search(gone.begin(), gone.end(), entry.step) ? entry.size_bytes : 0;
  }
  return fmt::format("{} {} of {} checkpoints, {}\n", verb, gone.size(), committed.size(),
                     format_bytes(size));
}

Result<int> rehearse(const Run& run, const checkpoint::RetentionRule& rule) {
  const auto view = look(run);
  if (!view) {
    return view.error();
  }
  const std::vector<IndexEntry> committed = committed_in(view->entries);
  if (committed.empty()) {
    return none_yet(run);
  }
  const std::vector<std::int64_t> old = checkpoint::to_retire(committed, rule);
  for (const std::int64_t step : old) {
    print(fmt::format("{}  would go\n", checkpoint::checkpoint_name(step)));
  }
  print(summary("would remove", committed, old));
  return kExitFinished;
}

/// The newest must be able to stand in for those that go.
Status check_newest(const Run& run, const IndexEntry& newest) {
  const auto found = checkpoint::verify_checkpoint(run.placed() / newest.directory);
  if (!found) {
    return found.error();
  }
  if (found->whole()) {
    return {};
  }
  const bool damaged = found->verdict == checkpoint::Verdict::damaged;
  return failure(fmt::format("{}{}: {}; removed nothing, as older ones may be needed{}",
                             newest.directory, damaged ? "" : " cannot be read", found->defect,
                             damaged ? "; the next run sets it aside" : ""));
}

}  // namespace

Result<int> prune(const CheckpointsOptions& options) {
  const auto run = open_run(options.run_directory);
  if (!run) {
    return run.error();
  }
  const auto rule = rule_of(*run, options);
  if (!rule) {
    return rule.error();
  }
  if (options.dry_run) {
    return rehearse(*run, *rule);
  }
  const auto lock = storage::FileLock::acquire(run->root);
  if (!lock) {
    return lock.error();
  }
  auto opened = checkpoint::open_index(run->index(), run->placed());
  if (!opened) {
    return opened.error();
  }
  const std::vector<IndexEntry> committed = opened->index.committed();
  if (committed.empty()) {
    return none_yet(*run);
  }
  const std::vector<std::int64_t> old = checkpoint::to_retire(committed, *rule);
  if (!old.empty()) {
    TRAIN_RETURN_IF_ERROR(check_newest(*run, committed.back()));
  }
  for (const std::int64_t step : old) {
    TRAIN_RETURN_IF_ERROR(checkpoint::retire(run->placed(), step));
    TRAIN_RETURN_IF_ERROR(opened->index.retire(step));
    print(fmt::format("{}  removed\n", checkpoint::checkpoint_name(step)));
  }
  TRAIN_RETURN_IF_ERROR(opened->index.log_event("pruned", fmt::format("removed={}", old.size())));
  print(summary("removed", committed, old));
  return kExitFinished;
}

Result<int> reindex(const CheckpointsOptions& options) {
  const auto run = open_run(options.run_directory);
  if (!run) {
    return run.error();
  }
  const auto lock = storage::FileLock::acquire(run->root);
  if (!lock) {
    return lock.error();
  }
  auto opened = checkpoint::open_index(run->index(), run->placed());
  if (!opened) {
    return opened.error();
  }
  checkpoint::CheckpointIndex& index = opened->index;
  const std::string found = index.report().reason;
  if (!index.report().rebuilt) {
    TRAIN_RETURN_IF_ERROR(index.rebuild("asked for by `checkpoints reindex`"));
  }
  const std::size_t placed = index.committed().size();
  print(fmt::format("index made anew: {} checkpoints in place, {} retired ones remembered{}\n",
                    placed, index.entries().size() - placed,
                    found.empty() ? "" : fmt::format("; the old one was damaged: {}", found)));
  return kExitFinished;
}

}  // namespace train::cli::checkpoints
