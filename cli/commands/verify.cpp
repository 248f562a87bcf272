#include <algorithm>
#include <chrono>
#include <thread>

#include "base/process/stop_signals.hpp"
#include "checkpoint/index/index_content.hpp"
#include "checkpoint/index/index_view.hpp"
#include "cli/audit/changed_keys.hpp"
#include "cli/audit/run_audit.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"
#include "configs/key_changes.hpp"
#include "configs/load_config.hpp"
#include "engine/state_view.hpp"
#include "run/directory/config_record.hpp"
#include "run/plan/run_plan.hpp"
#include "storage/rocks_store.hpp"

namespace train::cli {
using namespace run;
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointState;
using checkpoint::IndexEntry;

// Number of looks at the index for the fate of a missing checkpoint: two seconds.
constexpr int kLooks = 40;
constexpr std::chrono::milliseconds kBetweenLooks{50};

/// All checks of a run, from its directory to the list of problems.
class RunAudit {
 public:
  RunAudit(fs::path root, configs::RunConfig config)
      : files_{std::move(root)}, config_(std::move(config)) {}

  Status look() {
    // Listed before the index is read, which then includes later publications.
    auto placed = TRAIN_TRY(checkpoint::list_checkpoints(files_.placed()));
    std::reverse(placed.begin(), placed.end());
    TRAIN_RETURN_IF_ERROR(read_index());
    TRAIN_RETURN_IF_ERROR(check_config());
    check_journal();
    for (const checkpoint::Candidate& candidate : placed) {
      TRAIN_RETURN_IF_ERROR(check_checkpoint(candidate));
    }
    check_entries(placed);
    check_metrics();
    return {};
  }

  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  [[nodiscard]] std::string changes() const { return changed_keys_text(changes_); }
  [[nodiscard]] std::string summary() const {
    const auto digested =
        std::count_if(journal_.steps.begin(), journal_.steps.end(),
                      [](const auto& step) { return !step.second.tensor_digests.empty(); });
    return fmt::format(
        "consistent: {} checkpoint{}, {} of them with digests in the journal; {} steps, {} with "
        "digests; metrics of {} step{}{}{}",
        checkpoints_, checkpoints_ == 1 ? "" : "s", digested_checkpoints_, journal_.steps.size(),
        digested, metric_steps_, metric_steps_ == 1 ? "" : "s",
        newer_metrics_ > 0 ? fmt::format(", {} newer ones than the journal", newer_metrics_)
                           : std::string(),
        changes_.empty() ? std::string() : "; " + changes());
  }

 private:
  void problem(std::string what) { problems_.push_back(std::move(what)); }
  void problems(std::vector<std::string> more) {
    problems_.insert(problems_.end(), more.begin(), more.end());
  }

  Status read_index() {
    const auto view = TRAIN_TRY(checkpoint::view_index(files_.index(), files_.placed()));
    if (!view.without_index.empty()) {
      problem(view.without_index);  // The chain is broken, or behind the newest manifest.
    }
    auto store = storage::RocksStore::open_read_only(files_.index());
    if (!store) {
      if (view.without_index.empty()) {
        problem(store.error().message);
      }
      return {};
    }
    index_ = checkpoint::read_index_content(**store, {});
    auto changes = changed_keys(**store);
    if (!changes) {
      problem(changes.error().message);
      return {};
    }
    changes_ = std::move(changes).value();
    records_ = TRAIN_TRY(read_config_records(**store));
    auto journal = checkpoint::read_step_journal(**store);
    if (!journal) {
      problem(journal.error().message);
      return {};
    }
    journal_ = std::move(journal).value();
    return {};
  }

  /// Compares config.toml with the run's record of it. A start that was killed before its first
  /// step may have left the file of the start before.
  Status check_config() {
    if (records_.empty()) {
      return {};
    }
    const std::size_t allowed = records_.size() > 1 && !records_.back().begun ? 2 : 1;
    std::string edits;
    for (std::size_t back = 1; back <= allowed; ++back) {
      const auto recorded = TRAIN_TRY(configs::parse_config(
          records_[records_.size() - back].text, (files_.root / "config.toml").string()));
      edits = edits_text(configs::key_changes(as_found(recorded, files_.root), config_));
      if (edits.empty()) {
        return {};
      }
    }
    problem(
        fmt::format("config.toml: was edited after the run wrote it: {}; the run's next start "
                    "uses its own record and overwrites the file",
                    edits));
    return {};
  }

  /// The directory of a run may be moved.
  static std::string edits_text(const std::vector<configs::KeyChange>& changes) {
    std::vector<std::string> texts;
    for (const configs::KeyChange& change : changes) {
      if (change.path != "run.name" && change.path != "run.dir") {
        texts.push_back(fmt::format("{} is {} there, {} in the record", change.path,
                                    change.now_text(), change.before_text()));
      }
    }
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  void check_journal() { problems(audit_journal(journal_, tokens_per_step(config_))); }

  Status check_checkpoint(const checkpoint::Candidate& candidate) {
    const std::string name = candidate.path.filename().string();
    const auto content = read_content(candidate.path);
    if ((!content || !content->found.whole()) && checkpoint::is_gone(candidate.path)) {
      return {};  // Retired meanwhile.
    }
    TRAIN_RETURN_IF_ERROR(content);
    const checkpoint::Verification& found = content->found;
    if (!found.whole()) {
      problem(
          fmt::format("{}: {}: {}", name,
                      found.verdict == checkpoint::Verdict::damaged ? "damaged" : "cannot be read",
                      found.defect));
      return {};
    }
    ++checkpoints_;
    const IndexEntry* entry = index_.entries.find(candidate.step);
    if (entry == nullptr || entry->state != CheckpointState::committed) {
      if (!index_.notes.contains(candidate.step)) {  // Otherwise it is just being published.
        problem(
            fmt::format("{}: in place, but not committed in the index; the run's next start, "
                        "or `actortrain checkpoints reindex`, records it",
                        name));
      }
    } else if (entry->manifest_digest != found.manifest_digest) {
      problem(fmt::format("{}: its manifest is {}, in the index {}", name, found.manifest_digest,
                          entry->manifest_digest));
    }
    check_content(candidate, *content);
    return {};
  }

  /// Compares an intact checkpoint with the journal.
  void check_content(const checkpoint::Candidate& candidate, const CheckpointContent& content) {
    const checkpoint::Manifest& manifest = *content.found.manifest;
    const CheckpointFacts facts{.step = candidate.step,
                                .name = candidate.path.filename().string(),
                                .tokens = manifest.fields.tokens,
                                .weights_digest = manifest.fields.weights_digest,
                                .tensors = content.tensors,
                                .digests = content.digests};
    problems(audit_checkpoint(facts, journal_));
    const auto record = journal_.steps.find(candidate.step);
    if (record != journal_.steps.end() && !record->second.tensor_digests.empty()) {
      ++digested_checkpoints_;
    }
    weights_ = static_cast<std::size_t>(
        std::count_if(content.tensors.begin(), content.tensors.end(), engine::is_weight));
  }

  void check_entries(const std::vector<checkpoint::Candidate>& placed) {
    std::vector<IndexEntry> missing;
    for (const IndexEntry& entry : index_.entries.all()) {
      const bool there = std::any_of(placed.begin(), placed.end(),
                                     [&](const auto& one) { return one.step == entry.step; });
      std::error_code ignored;
      if (entry.state == CheckpointState::committed && !there &&
          !fs::exists(files_.placed() / entry.directory, ignored)) {
        missing.push_back(entry);
      }
    }
    for (int look = 0; !missing.empty() && look < kLooks; ++look) {
      std::this_thread::sleep_for(kBetweenLooks);
      erase_retired(missing);
    }
    for (const IndexEntry& entry : missing) {
      problem(fmt::format("{}: committed in the index, but not in place", entry.directory));
    }
  }

  /// A running run removes a checkpoint first, and records that afterwards.
  void erase_retired(std::vector<IndexEntry>& entries) const {
    const auto store = storage::RocksStore::open_read_only(files_.index());
    if (store) {
      const auto now = checkpoint::read_index_content(**store, {});
      std::erase_if(entries, [&](const IndexEntry& entry) {
        const IndexEntry* const known = now.entries.find(entry.step);
        return known != nullptr && known->state != CheckpointState::committed;
      });
    }
  }

  void check_metrics() {
    MetricsFacts facts{
        .steps = &journal_.steps, .validation_losses = index_.losses, .weights = weights_};
    for (const IndexEntry& entry : index_.entries.all()) {
      if (entry.validation_loss) {
        facts.validation_losses[entry.step] = *entry.validation_loss;
      }
    }
    MetricsAudit audit = audit_metrics(files_.root / "metrics.jsonl", facts);
    problems(std::move(audit.problems));
    metric_steps_ = audit.steps;
    newer_metrics_ = audit.newer;
  }

  StoredRun files_;
  configs::RunConfig config_;
  std::vector<ConfigRecord> records_;
  checkpoint::IndexContent index_;
  checkpoint::StepJournal journal_;
  std::vector<std::string> problems_;
  std::vector<std::string> changes_;  ///< Configuration changes between starts.
  std::int64_t checkpoints_ = 0;
  std::int64_t digested_checkpoints_ = 0;
  std::int64_t metric_steps_ = 0;
  std::int64_t newer_metrics_ = 0;
  std::size_t weights_ = 0;
};

/// Prints a line for each inconsistency, or one that lists what is consistent. Writes nothing.
Result<int> verify_run(const VerifyOptions& options) {
  allow_signals();
  const auto config = TRAIN_TRY(load_run_config(options.run_directory));
  RunAudit audit(options.run_directory, config);
  TRAIN_RETURN_IF_ERROR(audit.look());
  for (const std::string& problem : audit.problems()) {
    print(fmt::format("problem: {}\n", problem));
  }
  if (!audit.problems().empty()) {
    if (const std::string changes = audit.changes(); !changes.empty()) {
      print(changes + "\n");
    }
    return kExitFailure;
  }
  print(audit.summary() + "\n");
  return kExitFinished;
}

}  // namespace

void describe_verify(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "verify", "Check a run's journal, index, checkpoints and metrics against each other.");
  VerifyOptions& options = command.runs(verify_run);
  command.run_directory(options.run_directory);
}

}  // namespace train::cli
