#include <map>

#include "actors/train/runtime/rank_setup.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "cli/audit/changed_keys.hpp"
#include "cli/audit/replay_parts.hpp"
#include "cli/audit/run_audit.hpp"
#include "cli/audit/step_difference.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"
#include "engine/objective/registry.hpp"
#include "engine/rank/plan/run_device.hpp"

namespace train::cli {
using namespace actors;
using namespace run;
namespace {

namespace fs = std::filesystem;
using checkpoint::StepRecord;

/// Replay of steps, from creating ranks to the findings.
class Replay {
 public:
  Replay(ReplayPlan plan, fs::path run)
      : run_plan_(std::move(plan.run)), range_(std::move(plan.range)), run_(std::move(run)) {}

  /// Prints a line for each finding, or one that everything is equal.
  Result<int> run() {
    auto ranks = TRAIN_TRY(start());
    names_ = ModelNames::of(engine::describe_units(run_plan_.engine.model), tensor_names(ranks));
    TRAIN_RETURN_IF_ERROR(check_journal());
    if (const auto different = compare_start(ranks)) {
      return found(*different);
    }
    const auto checkpoint = TRAIN_TRY(add_checkpoints());
    if (!checkpoint.empty()) {
      return found(checkpoint);
    }
    TRAIN_RETURN_IF_ERROR(compute(ranks));
    if (!difference_) {
      say_same();
      return kExitFinished;
    }
    const int exit_code = found(describe(*difference_, names_, agreed_));
    ranks.clear();  // Their memory is needed again.
    TRAIN_RETURN_IF_ERROR(compute_again());
    return exit_code;
  }

 private:
  static void say(const std::string& line) { print(line + "\n"); }

  void say_same() const {
    const std::int64_t ranks = run_plan_.engine.parallel.ranks;
    say(
        fmt::format("same bits: {} steps and {} tensor digests; replayed steps {} to {} from {} on "
                    "{} {}{}",
                    replayed_.size(), digests_, range_.first_step() + 1, range_.to,
                    range_.start_text(), ranks, ranks == 1 ? "rank" : "ranks",
                    range_.changes.empty() ? "" : "; " + changed_keys_text(range_.changes)));
  }

  [[nodiscard]] int found(const std::string& what) const {
    say("different: " + what);
    if (!range_.changes.empty()) {
      say(changed_keys_text(range_.changes));
    }
    return kExitFailure;
  }

  [[nodiscard]] Result<std::vector<RankContext>> start() const {
    StartState start{.reads_reference = true};
    if (range_.start) {
      start.checkpoint = range_.start->path;
    }
    return make_local_ranks(run_plan_, start);
  }

  [[nodiscard]] Status check_journal() const {
    for (const auto& [step, record] : range_.journal.steps) {
      const std::size_t count = record.tensor_digests.size();
      if (count != 0 && count != names_.tensors.size()) {
        return failure(
            fmt::format("the journal has {} digests of step {}, but the run has {} tensors", count,
                        step, names_.tensors.size()));
      }
    }
    return {};
  }

  /// Compares the restored state with the journal's record of that step.
  [[nodiscard]] std::optional<std::string> compare_start(const std::vector<RankContext>& ranks) {
    if (engine::begins_phase(run_plan_.engine, range_.first_step())) {
      return std::nullopt;  // The record includes optimizer states that ended with the previous
                            // phase.
    }
    const auto record = range_.journal.steps.find(range_.first_step());
    if (record == range_.journal.steps.end() || record->second.tensor_digests.empty()) {
      return std::nullopt;
    }
    return compare_digests(record->second.tensor_digests, tensor_digests(ranks),
                           range_.first_step());
  }

  [[nodiscard]] std::optional<std::string> compare_digests(
      const std::vector<std::uint64_t>& journal, const std::vector<std::uint64_t>& placed,
      std::int64_t step) {
    digests_ += journal.size();
    const auto tensors = differing_tensors(journal, placed, names_);
    if (tensors.empty()) {
      return std::nullopt;
    }
    return fmt::format("step {}: {} between the journal and {}; nothing was computed again", step,
                       tensors_text(tensors, names_), checkpoint::checkpoint_name(step));
  }

  /// Adds digests of checkpoints on the way, which the journal may lack. A text: one differs from
  /// the journal.
  Result<std::string> add_checkpoints() {
    const auto placed = TRAIN_TRY(checkpoint::list_checkpoints(StoredRun{run_}.placed()));
    for (auto each = placed.rbegin(); each != placed.rend(); ++each) {
      const auto record = range_.journal.steps.find(each->step);
      if (each->step <= range_.first_step() || each->step > range_.to ||
          record == range_.journal.steps.end()) {
        continue;
      }
      auto digests = TRAIN_TRY(digests_of(each->path));
      auto& journal = record->second.tensor_digests;
      if (digests.size() != names_.tensors.size()) {
        continue;  // Retired meanwhile.
      }
      if (journal.empty()) {
        journal = std::move(digests);
      } else if (const auto different = compare_digests(journal, digests, each->step)) {
        return *different;
      }
    }
    return std::string();
  }

  /// Empty: it no longer exists.
  static Result<std::vector<std::uint64_t>> digests_of(const fs::path& directory) {
    auto content = TRAIN_TRY(read_content(directory));
    if (!content.found.whole() && !checkpoint::is_gone(directory)) {
      const bool damaged = content.found.verdict == checkpoint::Verdict::damaged;
      return failure(fmt::format("{}: {}: {}", directory.string(),
                                 damaged ? "damaged" : "cannot be read", content.found.defect));
    }
    return std::move(content.digests);
  }

  [[nodiscard]] Status replay_to(std::int64_t last, const std::vector<RankContext>& ranks,
                                 std::function<bool(const StepRecord&)> heard) const {
    return run_local_ranks(ranks,
                           {.first_step = range_.first_step(),
                            .total_steps = last,
                            .live_reference = live_reference_of(run_plan_.data->facts().reference),
                            .passes = engine::pass_list_of(run_plan_.engine),
                            .saves = false},
                           {.step = std::move(heard), .evaluation = {}});
  }

  /// Compares each step with the journal, up to the first difference.
  Status compute(const std::vector<RankContext>& ranks) {
    agreed_ = range_.first_step();
    return replay_to(range_.to, ranks, [this](const StepRecord& step) {
      replayed_[step.step] = step;
      const auto journal = range_.journal.steps.find(step.step);
      if (journal == range_.journal.steps.end()) {
        return true;  // Before the requested steps.
      }
      difference_ = compare_steps(journal->second, step, names_);
      if (!difference_ && !journal->second.tensor_digests.empty()) {
        agreed_ = step.step;
        digests_ += names_.tensors.size();
      }
      return !difference_;
    });
  }

  /// Recomputes up to the difference and compares every step and tensor with the first attempt, to
  /// decide whether the run's or this machine's bits are unreliable.
  Status compute_again() {
    const auto ranks = TRAIN_TRY(start());
    std::optional<StepDifference> unlike;
    TRAIN_RETURN_IF_ERROR(replay_to(difference_->step, ranks, [&](const StepRecord& step) {
      unlike = compare_steps(replayed_.at(step.step), step, names_);
      return !unlike;
    }));
    say(unlike ? fmt::format("computed again, it differs from the first time here: {}; this "
                             "machine does not compute the same bits twice: suspect its memory or "
                             "processor",
                             describe(*unlike, names_, unlike->step - 1))
               : fmt::format("computed again on this machine, steps {} to {} are the same bits as "
                             "the first time: what differs is what the run left",
                             range_.first_step() + 1, difference_->step));
    return {};
  }

  RunPlan run_plan_;
  ReplayRange range_;
  fs::path run_;
  ModelNames names_;
  std::map<std::int64_t, StepRecord> replayed_;
  std::optional<StepDifference> difference_;
  std::int64_t agreed_ = 0;    ///< Last step with equal digests.
  std::uint64_t digests_ = 0;  ///< Number of digests compared.
};

/// Warns if the kernel set differs, which determines the bits.
void warn_of_kernels(const ReplayRange& range, const configs::RunConfig& config) {
  const std::string here = engine::kernel_set_name(config.runtime.device, config.precision.compute);
  for (const std::string& saved : range.kernel_sets) {
    if (saved != here) {
      log_warning(fmt::format("kernel_set_changed saved with {}, replayed on {}: bits will differ",
                              saved, here));
    }
  }
}

/// Recomputes steps, from the newest checkpoint before them or from the initial weights, and
/// compares loss, norms, learning rate and digests with the journal, and digests with the existing
/// checkpoints. Writes nothing.
Result<int> replay(const ReplayOptions& options) {
  allow_signals();
  auto plan = TRAIN_TRY(plan_replay(options));
  const std::string& device = plan.run.config.runtime.device;
  TRAIN_RETURN_IF_ERROR(engine::check_device(device, plan.run.engine.model, kOtherDevice));
  warn_of_kernels(plan.range, plan.run.config);
  return Replay(std::move(plan), options.run_directory).run();
}

}  // namespace

void describe_replay(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "replay", "Compute steps of a run again and compare every bit with its journal.");
  ReplayOptions& options = command.runs(replay);
  command.run_directory(options.run_directory);
  command.integer("--from", options.from,
                  "First step; by default the one after the newest checkpoint before --to", 1);
  command.integer("--to", options.to, "Last step; by default the last in the journal", 1);
  command.integer("--ranks", options.ranks, "Ranks that share the work; by default 1", 1);
  command.device(options.device);
  command.check([&options] {
    return options.from && options.to && *options.from > *options.to
               ? fmt::format("--from {} is after --to {}", *options.from, *options.to)
               : std::string();
  });
}

}  // namespace train::cli
