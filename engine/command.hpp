#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace train::engine {

/// The commands that every rank follows: lanes through the model, a snapshot of its state, the end.
/// A pass is one entry of the run's list (PassList).
enum class CommandKind : std::uint8_t { pass, snapshot, stop };

struct CommandName {
  std::string_view trace;   ///< In traces of what ran when.
  std::string_view report;  ///< In texts for people.

  bool operator==(const CommandName&) const = default;
};
inline constexpr CommandName kSnapshotName = {"snapshot", "TakeSnapshot"};
inline constexpr CommandName kStopName = {"stop", "StopRank"};

/// Which rows the lanes of a pass hold.
enum class LaneRows : std::uint8_t {
  training,    ///< Rows of a step, from the stream that the objective's pass reads.
  validation,  ///< Rows that evaluations read.
  questions,   ///< Scored documents.
  texts,       ///< Texts that are continued, one a lane.
  documents,   ///< All documents that need a reference, in the data's order; as many lanes as a
               ///< step.
};

/// Use of the gradient of a pass.
enum class GradientUse : std::uint8_t {
  none,      ///< Lanes have forward passes alone.
  kept,      ///< Summed, reduced and kept for the passes of the step that come next.
  applied,   ///< Summed, reduced and joined with what was kept; the optimizer updates.
  searched,  ///< Counted for NaN and Inf, by unit; no weight changes.
};

/// Use of the head's results for a lane.
enum class LossUse : std::uint8_t {
  summed,      ///< Losses, added up over all lanes.
  scores,      ///< Log-probabilities of the lane's documents (DocumentScores).
  tokens,      ///< The next token of the lane's text (SampledTokens).
  references,  ///< Log-probabilities of its documents, kept as the reference's.
  compared,    ///< The tensors that the objective's pass over the same rows is compared with, kept.
  block_sums,  ///< None: the blocks' sums, added up over all lanes for the pass over the same rows.
};

/// One way in which lanes go through the model. Plain data; the same on every rank.
struct PassPlan {
  CommandName name;
  std::int32_t index = 0;  ///< Index in the run's PassList.
  LaneRows rows = LaneRows::training;
  GradientUse gradient = GradientUse::none;
  LossUse loss = LossUse::summed;
  bool frozen = false;     ///< The layers read the frozen copy's weights, not the run's.
  std::size_t number = 0;  ///< Training rows: index of the objective's pass it is or keeps for.

  [[nodiscard]] constexpr bool has_backward() const { return gradient != GradientUse::none; }
  [[nodiscard]] constexpr bool reduces() const {
    return updates() || gradient == GradientUse::kept;
  }
  [[nodiscard]] constexpr bool updates() const { return gradient == GradientUse::applied; }
  [[nodiscard]] constexpr bool searches() const { return gradient == GradientUse::searched; }
  [[nodiscard]] constexpr bool evaluates() const { return rows == LaneRows::validation; }
  /// True if the pass comes after a step and is not a part of one.
  [[nodiscard]] constexpr bool after_step() const {
    return evaluates() || rows == LaneRows::questions || rows == LaneRows::texts;
  }
};

// The list of a run whose steps have one pass (PassList), and what other lists are made of.
inline constexpr PassPlan kEvaluation = {
    .name = {"evaluate", "Evaluate"}, .index = 0, .rows = LaneRows::validation};
inline constexpr PassPlan kScoring = {.name = {"score", "ScoreChoices"},
                                      .index = 1,
                                      .rows = LaneRows::questions,
                                      .loss = LossUse::scores};
inline constexpr PassPlan kReference = {.name = {"reference", "ComputeReference"},
                                        .index = 2,
                                        .rows = LaneRows::documents,
                                        .loss = LossUse::references};
inline constexpr PassPlan kSampling = {.name = {"sample", "SampleTokens"},
                                       .index = 3,
                                       .rows = LaneRows::texts,
                                       .loss = LossUse::tokens};
inline constexpr PassPlan kTrainStep = {
    .name = {"train_step", "TrainStep"}, .index = 4, .gradient = GradientUse::applied};
inline constexpr PassPlan kNonfiniteSearch = {
    .name = {"find_nonfinite", "FindNonfinite"}, .index = 5, .gradient = GradientUse::searched};

/// The text of a lane that is continued.
struct LaneText {
  std::int64_t tokens = 0;  ///< Length of the text; the lane has its last tokens.
  std::int64_t vocab = 0;   ///< Ids at and above it are never chosen.
};

/// Names one lane of one command; `slot` holds its tokens.
struct LaneWork {
  PassPlan pass = kTrainStep;
  std::int64_t step = 0;
  std::int64_t lane = 0;
  std::int32_t slot = 0;
  std::int64_t round = 0;     ///< Round of this rank's lanes (LaneSchedule).
  std::uint64_t command = 0;  ///< Number of the command in the conductor's stream.
  LaneText text = {};         ///< Text of a lane of LaneRows::texts.
};

/// Shared memory that a unit's group has reserved for the unit's pass.
struct UnitBuffers {
  std::int32_t gather = -1;  ///< Reservation of the gathered weights; -1: they are resident.
  /// Reservation of the gradient buffer of the lane's gradient (backward of training).
  std::int32_t gradient_buffer = -1;
};

}  // namespace train::engine
