#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/head/run_plan.hpp"
#include "actors/head/run_program.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "cli/options.hpp"

namespace train::cli {

/// Which steps are computed again, from where, and what they are compared with.
struct ReplayRange {
  checkpoint::StepJournal journal;             ///< The run's.
  std::optional<checkpoint::Candidate> start;  ///< None: initial weights.
  std::int64_t from = 0;                       ///< First step that was asked for.
  std::int64_t to = 0;                         ///< Last one.
  std::vector<std::string> changes;            ///< Of the configuration, between these steps.

  [[nodiscard]] std::int64_t first_step() const { return start ? start->step : 0; }
  /// Where it begins, for people.
  [[nodiscard]] std::string start_text() const;
};

struct ReplayPlan {
  actors::RunPlan run;  ///< Of the replay's own ranks, all in this process.
  ReplayRange range;
};

/// The run file in place, or the one that a checkpoint carries: that whose learning rates the
/// journal has. Reads the journal and manifests; changes nothing. Blocks.
/// Errors (user): no run there; other data than that of the steps; steps of more than one length of
/// the run; more ranks than lanes, or other ranks than its bits allow; no steps in the journal, or
/// not those; (failure) steps missing in between, an unreadable journal.
[[nodiscard]] Result<ReplayPlan> plan_replay(const ReplayOptions& options);

/// Names of all tensors of these ranks' run, sorted.
[[nodiscard]] std::vector<std::string> tensor_names(const std::vector<actors::RankContext>& ranks);

/// Digests of what the ranks hold now, by tensor_names(). REQUIRES: their streams are idle.
[[nodiscard]] std::vector<std::uint64_t> tensor_digests(
    const std::vector<actors::RankContext>& ranks);

/// What is heard of ranks; false: stop.
struct LocalListener {
  std::function<bool(const checkpoint::StepRecord&)> step;  ///< With digests of all tensors.
  std::function<bool(const actors::EvaluationFinished&)> evaluation;
};

/// Runs the actors of `ranks`, which are in this process, as `program` says, until it is over or
/// `listener` says stop. Nothing is written. Blocks. Errors: a rank failed; a step was not finite.
/// REQUIRES: `listener` has a function for all that `program` makes happen.
Status run_local_ranks(const std::vector<actors::RankContext>& ranks,
                       const actors::RunProgram::Options& program, const LocalListener& listener);

}  // namespace train::cli
