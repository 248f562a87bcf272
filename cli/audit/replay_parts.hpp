#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/messages/event_messages.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "cli/options.hpp"
#include "run/plan/run_plan.hpp"
#include "run/program/run_program.hpp"

namespace train::cli {

/// Steps to recompute, their start state, and the journal to compare with.
struct ReplayRange {
  checkpoint::StepJournal journal;             ///< Journal of the run.
  std::optional<checkpoint::Candidate> start;  ///< nullopt: initial weights.
  std::int64_t from = 0;                       ///< First requested step.
  std::int64_t to = 0;                         ///< Last requested step.
  std::vector<std::string> changes;            ///< Configuration changes between these steps.
  /// Named by the checkpoints left after the start, up to the first at or after `to`.
  std::set<std::string> kernel_sets;

  [[nodiscard]] std::int64_t first_step() const { return start ? start->step : 0; }
  /// Start of the replay, as text.
  [[nodiscard]] std::string start_text() const;
};

struct ReplayPlan {
  run::RunPlan run;  ///< Plan of the replay's own ranks, all in this process.
  ReplayRange range;
};

/// Uses the configuration that the steps were computed with, by the run's records. Reads the
/// journal and manifests; changes nothing. Blocks. Errors (user): no run there; data that differs
/// from that of the steps; steps of different configurations; more ranks than lanes, or another
/// number of ranks than its bits allow; no steps in the journal, or not these;
/// (failure) steps missing in between, an unreadable journal.
[[nodiscard]] Result<ReplayPlan> plan_replay(const ReplayOptions& options);

/// Names of all tensors of these ranks' run, sorted.
[[nodiscard]] std::vector<std::string> tensor_names(const std::vector<actors::RankContext>& ranks);

/// Digests of the ranks' current tensors, in the order of tensor_names(). REQUIRES: their streams
/// are idle.
[[nodiscard]] std::vector<std::uint64_t> tensor_digests(
    const std::vector<actors::RankContext>& ranks);

/// Callbacks for reports of ranks; they return false to stop.
struct LocalListener {
  std::function<bool(const checkpoint::StepRecord&)> step;  ///< Record of a step, with digests of
                                                            ///< all tensors.
  std::function<bool(const actors::EvaluationFinished&)> evaluation;
};

/// Runs the actors of `ranks`, all in this process, through `program`, until it ends or `listener`
/// stops it. Nothing is written. Blocks. Errors: a rank failed; a step was not finite. REQUIRES:
/// `listener` has a function for every event of `program`.
Status run_local_ranks(const std::vector<actors::RankContext>& ranks,
                       const run::RunProgram::Options& program, const LocalListener& listener);

}  // namespace train::cli
