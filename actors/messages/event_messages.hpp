#pragma once

#include <bit>
#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/messages/fields.hpp"

// What ranks report to the conductor, and the conductor to the reporter, the index and itself.
namespace train::actors {

/// Part of StepFinished: A double as its bit pattern. The network layer of the actor framework
/// corrupts NaN, infinities, subnormals and -0, so no message field is a float.
struct FloatBits {
  std::uint64_t bits = 0;

  FloatBits() = default;
  explicit FloatBits(double value) : bits(std::bit_cast<std::uint64_t>(value)) {}
  [[nodiscard]] double value() const { return std::bit_cast<double>(bits); }
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, FloatBits& x) {
  return f(x.bits);
}

/// Compute stream of every rank -> conductor -> reporter and index: The update of a step has run.
/// The conductor compares what the ranks say and passes one message on for all of them. `step`
/// counts finished steps (1 after the first).
struct StepFinished {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  FloatBits loss;
  FloatBits grad_norm;
  FloatBits lr;
  /// Steady time that the rank had trained for when its stream came to the step's end, since it was
  /// connected and without evaluations; of all, the longest. It never decreases, so that what it
  /// grew by from one step to another is the time between their ends.
  std::int64_t trained_ns = 0;
  bool nonfinite = false;  ///< Loss or norm not finite: no weight was changed.
  bool has_digest = false;
  std::uint64_t weights_digest = 0;  ///< Of the rank's rows; of all once the conductor has summed.
  /// engine::tensor_digests() of all that a checkpoint holds; as weights_digest. Empty: no digest.
  std::vector<std::uint64_t> tensor_digests = {};
  std::vector<std::uint64_t> unit_grad_norms;  ///< Bit patterns of doubles, by unit.
  /// engine::words_of() the optimizer's exact sums: of the rank's rows, of all once the conductor
  /// has added them up. Empty where none are made.
  std::vector<std::uint64_t> optimizer_sums = {};
  /// Bit patterns of StepResult::metrics; NaN where there is nothing to report.
  std::vector<std::uint64_t> objective_metrics = {};
};

/// Compute stream of every rank -> conductor -> reporter and index: An evaluation has run, or the
/// questions of eval.choices are answered. The conductor compares what the ranks say, puts their
/// documents one after the other, and passes one message on for all of them.
struct EvaluationFinished {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  bool of_choices = false;  ///< It has documents, and no losses.
  FloatBits cross_entropy;  ///< Nats per token; of pairs or examples their mean loss.
  FloatBits accuracy;
  std::int64_t elapsed_ns = 0;  ///< Since the rank had done what came before; of all, the longest.
  /// Of the documents of the choices (storage/choices) that the rank has scored.
  std::int64_t first_document = 0;
  /// Bit patterns of doubles, of those documents.
  std::vector<std::uint64_t> log_likelihoods = {};
  std::vector<std::uint64_t> objective_metrics = {};  ///< As those of StepFinished.
};

/// Index -> conductor -> reporter: A checkpoint is published and recorded.
struct CheckpointWritten {
  std::int64_t step = 0;
  std::string directory;
  std::uint64_t size_bytes = 0;
  std::int64_t elapsed_ns = 0;
};

/// Index -> conductor: With two storage locations, a checkpoint is complete in the nodes' local one
/// and not yet published.
struct CheckpointLocal {
  std::int64_t step = 0;
};

/// Index -> conductor: No work of the save of `step` is under way any more, whether it was
/// published or given up. The next save may begin.
struct SaveFinished {
  std::int64_t step = 0;
};

/// Disk stream -> snapshot or index -> conductor -> reporter: A shard, its copy, the publication or
/// the record of a save has failed. Training continues, and the checkpoints before it remain.
struct CheckpointFailed {
  std::int64_t step = 0;
  std::int32_t rank = -1;  ///< Whose shard; -1: the checkpoint as a whole.
  std::string text;
};

/// Conductor -> reporter and index: A newer snapshot, whose state is finite, has replaced one that
/// waited for a save to be over.
struct CheckpointSkipped {
  std::int64_t step = 0;
};

/// Compute stream of every rank -> conductor: The search that FindNonfinite asked for has run. All
/// ranks say the same. A step of two passes has two searches, in the order of the passes.
struct NonfiniteFound {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  bool found = false;  ///< Some value of the pass is not finite, computed again.
  std::string text;    ///< "in block 1 (backward), lane 3 of rank 0", or where it can only be.
};

/// Rank -> conductor: After StopRank, all saves of the rank are finished.
struct RankStopped {
  std::int32_t rank = 0;
};

/// Rank or cluster -> conductor: A part or a stream of the rank has failed, its process has ended,
/// or it has lost another rank. The generation is over.
struct RankFailed {
  std::int32_t rank = 0;
  std::string text;  ///< Part, layer, step and what was thrown, one line.
  std::int32_t exit_code = 1;
  /// It only lost another rank: the cause is elsewhere, and its own report may still be on its way.
  bool consequence = false;
  /// Its process was killed or cannot be reached: what it did can be done again.
  bool lost = false;
  /// It cannot start: what it read of its checkpoint is not what was saved.
  bool damaged = false;
};

/// Conductor or cluster -> itself: Sent 0.3 s after a failure that is only the consequence of
/// another. No report of the cause has come in that time.
struct ConcludeFailure {};

/// Conductor -> itself: Sent `checkpoint.drain_s` after the last command. Saves that are still
/// under way are stopped.
struct DrainOver {};

/// Report stream -> reporter -> conductor: Metrics could not be written. It is sent for the first
/// failure only, and the run ends with exit code 1.
struct ReportFailed {
  std::string text;
};

/// Signal watcher -> conductor or cluster, conductor -> reporter: A signal that asks to stop
/// has come. The reporter hears of it when no further step is given out.
struct StopRequested {
  std::int32_t signal = 0;
};

/// Head -> conductor: Nodes that did not take part are back, and a snapshot in memory has been
/// sealed since. The generation ends so that all ranks start again with theirs.
struct NodesReturned {};

/// What the end of a generation of ranks means for the run.
enum class GenerationEnd : std::uint8_t {
  run_over,        ///< It is over, too.
  rank_lost,       ///< A rank (RankFailed::lost) or its connections are lost.
  nodes_returned,  ///< Nodes that are back are to take part (NodesReturned).
  phase_over,      ///< It goes on with ranks for the next phase of its objective.
  damage_found,    ///< A rank says that its checkpoint is damaged (RankFailed::damaged).
};

/// Conductor or cluster -> main thread: The run, or this generation, is over, its report closed.
struct RunFinished {
  std::int64_t step = 0;
  std::int32_t exit_code = 0;
  std::string text;
  GenerationEnd end = GenerationEnd::run_over;
};

/// Conductor -> reporter and other listeners: The run is over: write what is left.
struct CloseReport {};

/// Report stream, for a listener -> conductor: Everything is written.
struct ReportDrained {};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConcludeFailure)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::DrainOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::NodesReturned)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::CloseReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ReportDrained)
