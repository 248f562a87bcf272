#include <algorithm>

#include "base/process/stop_signals.hpp"
#include "base/text/units.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/index/index.hpp"
#include "checkpoint/save/retention.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"
#include "run/directory/run_directory.hpp"
#include "run/plan/kept_checkpoints.hpp"

namespace train::cli {
namespace {

using checkpoint::CheckpointState;
using checkpoint::IndexEntry;

/// Rule of the run, with the command line's overrides.
Result<checkpoint::RetentionRule> rule_of(const StoredRun& run, const PruneOptions& options) {
  checkpoint::RetentionRule rule{.keep_last = options.keep_last.value_or(0),
                                 .keep_every = options.keep_every.value_or(0),
                                 .keep_best = options.keep_best.value_or(0)};
  if (options.keep_last && options.keep_every && options.keep_best) {
    return rule;  // The run file need not even be readable.
  }
  const auto config = TRAIN_TRY(load_run_config(run.root));
  const checkpoint::RetentionRule own = run::retention_rule(config);
  rule.keep_last = options.keep_last.value_or(own.keep_last);
  rule.keep_every = options.keep_every.value_or(own.keep_every);
  rule.keep_best = options.keep_best.value_or(own.keep_best);
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

/// Line of a checkpoint that goes. The best one does not go without a word.
std::string gone_line(const std::vector<IndexEntry>& committed, std::int64_t step,
                      std::string_view verb) {
  const bool best = checkpoint::best_steps(committed) == std::vector{step};
  return fmt::format("{}  {}{}\n", checkpoint::checkpoint_name(step), verb,
                     best ? ": the best, with the lowest validation loss" : "");
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

Status rehearse(const StoredRun& run, const checkpoint::RetentionRule& rule) {
  const auto view = TRAIN_TRY(look(run));
  const std::vector<IndexEntry> committed = committed_in(view.entries);
  if (committed.empty()) {
    return none_yet(run);
  }
  const std::vector<std::int64_t> old = checkpoint::to_retire(committed, rule);
  for (const std::int64_t step : old) {
    print(gone_line(committed, step, "would go"));
  }
  print(summary("would remove", committed, old));
  return {};
}

/// Checks the newest checkpoint, which must replace those removed.
Status check_newest(const StoredRun& run, const IndexEntry& newest) {
  const auto found = TRAIN_TRY(checkpoint::verify_checkpoint(run.placed() / newest.directory));
  if (found.whole()) {
    return {};
  }
  const bool damaged = found.verdict == checkpoint::Verdict::damaged;
  return failure(fmt::format("{}{}: {}; removed nothing, as older ones may be needed{}",
                             newest.directory, damaged ? "" : " cannot be read", found.defect,
                             damaged ? "; the next run sets it aside" : ""));
}

Status prune(const PruneOptions& options) {
  allow_signals();  // An interrupted removal is completed at the next start.
  const auto run = TRAIN_TRY(open_run(options.run_directory));
  const auto rule = TRAIN_TRY(rule_of(run, options));
  if (options.dry_run) {
    return rehearse(run, rule);
  }
  const auto lock = run::lock_run(run.root);
  TRAIN_RETURN_IF_ERROR(lock);
  const auto identity = TRAIN_TRY(checkpoint::read_identity(run.root));
  auto opened =
      TRAIN_TRY(checkpoint::open_index(run.index(), run.placed(), checkpoint::IndexReading::needed,
                                       identity.value_or(checkpoint::RunIdentity())));
  const std::vector<IndexEntry> committed = opened.index.committed();
  if (committed.empty()) {
    return none_yet(run);
  }
  const std::vector<std::int64_t> old = checkpoint::to_retire(committed, rule);
  if (!old.empty()) {
    TRAIN_RETURN_IF_ERROR(check_newest(run, committed.back()));
  }
  for (const std::int64_t step : old) {
    TRAIN_RETURN_IF_ERROR(
        checkpoint::retire(run.placed(), step, identity.value_or(checkpoint::RunIdentity())));
    TRAIN_RETURN_IF_ERROR(opened.index.retire(step));
    print(gone_line(committed, step, "removed"));
  }
  TRAIN_RETURN_IF_ERROR(opened.index.log_event("pruned", fmt::format("removed={}", old.size())));
  print(summary("removed", committed, old));
  return {};
}

}  // namespace

void describe_checkpoints_prune(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "checkpoints prune",
      "Remove checkpoints that the run's retention rule, or the one given here, does not keep.");
  PruneOptions& options = command.runs(prune);
  command.run_directory(options.run_directory);
  command.integer("--keep-last", options.keep_last,
                  "Keep this many newest, instead of checkpoint.keep_last", 1);
  command.integer(
      "--keep-every", options.keep_every,
      "Keep every step that is a multiple of this, instead of checkpoint.keep_every; 0: none", 0);
  command.integer("--keep-best", options.keep_best,
                  "Keep this many of lowest loss, instead of checkpoint.keep_best; 0: none", 0);
  command.app.add_flag("--dry-run", options.dry_run, "Print what would be removed; remove nothing");
}

}  // namespace train::cli
