#pragma once

#include <bit>
#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/messages/fields.hpp"

// Reports of ranks to the conductor, and of the conductor to the reporter, the index and itself.
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
/// The conductor compares the ranks' messages and passes one message on for all of them. `step`
/// counts finished steps (1 after the first).
struct StepFinished {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  FloatBits loss;
  FloatBits grad_norm;
  FloatBits lr;
  /// Monotonic training time of the rank up to the step's end on its stream, since it was connected
  /// and without evaluations; for all ranks the longest. It never decreases, so differences between
  /// steps are the times between their ends.
  std::int64_t trained_ns = 0;
  bool nonfinite = false;  ///< Loss or norm not finite: no weight was changed.
  bool has_digest = false;
  std::uint64_t weights_digest = 0;  ///< Digest of the rank's rows; of all after summation.
  /// engine::tensor_digests() of everything in a checkpoint; summed like weights_digest. Empty: no
  /// digest.
  std::vector<std::uint64_t> tensor_digests = {};
  std::vector<std::uint64_t> unit_grad_norms;  ///< Bit patterns of doubles, by unit.
  /// engine::words_of() the optimizer's exact sums: of the rank's rows, of all once the conductor
  /// has added them up. Empty if there are none.
  std::vector<std::uint64_t> optimizer_sums = {};
  /// Bit patterns of StepResult::metrics; NaN if there is nothing to report.
  std::vector<std::uint64_t> objective_metrics = {};
};

/// Compute stream of every rank -> conductor -> reporter and index: An evaluation has run, or the
/// questions of eval.choices are answered. The conductor compares the ranks' messages, concatenates
/// their documents, and passes one message on for all of them.
struct EvaluationFinished {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  bool of_choices = false;  ///< It holds documents, and no losses.
  FloatBits cross_entropy;  ///< Nats per token; for pairs or examples their mean loss.
  FloatBits accuracy;
  std::int64_t elapsed_ns = 0;  ///< Time since the rank had finished earlier work; for all ranks
                                ///< the longest.
  /// First document of eval.choices (storage/choices) that the rank has scored.
  std::int64_t first_document = 0;
  /// Bit patterns of doubles, one per document.
  std::vector<std::uint64_t> log_likelihoods = {};
  std::vector<std::uint64_t> objective_metrics = {};  ///< As in StepFinished.
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

/// Index -> conductor: No work of the save of `step` is in progress any more, whether it was
/// published or given up. The next save may begin.
struct SaveFinished {
  std::int64_t step = 0;
};

/// Disk stream -> snapshot or index -> conductor -> reporter: A shard, its copy, the publication or
/// the record of a save has failed. Training continues, and the checkpoints before it remain.
struct CheckpointFailed {
  std::int64_t step = 0;
  std::int32_t rank = -1;  ///< Rank of the shard; -1: the checkpoint as a whole.
  std::string text;
};

/// Conductor -> reporter and index: A newer snapshot, whose state is finite, has replaced one that
/// waited for a save to be over.
struct CheckpointSkipped {
  std::int64_t step = 0;
};

/// Compute stream of every rank -> conductor: The search requested by FindNonfinite has run. All
/// ranks give the same result. A step of two passes has two searches, in the order of the passes.
struct NonfiniteFound {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  bool found = false;  ///< A value of the recomputed pass is not finite.
  std::string text;    ///< "in block 1 (backward), lane 3 of rank 0", or the possible places.
};

/// Rank -> conductor: After StopRank, all saves of the rank are finished.
struct RankStopped {
  std::int32_t rank = 0;
};

/// Rank or cluster -> conductor: A part or a stream of the rank has failed, its process has ended,
/// or it has lost another rank. The generation is over.
struct RankFailed {
  std::int32_t rank = 0;
  std::string text;  ///< Part, layer, step and exception text, one line.
  std::int32_t exit_code = 1;
  /// Only another rank was lost: the cause is elsewhere, and its own report may follow.
  bool consequence = false;
  /// Its process was killed or is unreachable: its work can be repeated.
  bool lost = false;
  /// It cannot start: the bytes read of its checkpoint differ from those saved.
  bool damaged = false;
};

/// Conductor or cluster -> itself: Sent 0.3 s after a failure that is only the consequence of
/// another, of whose cause no report has come in that time.
struct ConcludeFailure {};

/// Conductor -> itself: Sent `checkpoint.drain_s` after the last command. Saves still in progress
/// are stopped.
struct DrainOver {};

/// Report stream -> reporter -> conductor: Metrics could not be written. It is sent for the first
/// failure only, and the run ends with exit code 1.
struct ReportFailed {
  std::string text;
};

/// Signal watcher -> conductor or cluster, conductor -> reporter: A stop signal has arrived. The
/// reporter is told when no further step is issued.
struct StopRequested {
  std::int32_t signal = 0;
};

/// Head -> conductor: Nodes that did not take part have returned, and a snapshot in memory has been
/// sealed since. The generation ends so that all ranks start again with theirs.
struct NodesReturned {};

/// Meaning of the end of a generation of ranks for the run.
enum class GenerationEnd : std::uint8_t {
  run_over,        ///< The run is over, too.
  rank_lost,       ///< A rank (RankFailed::lost) or its connections are lost.
  nodes_returned,  ///< Returned nodes are to take part (NodesReturned).
  phase_over,      ///< The run continues with ranks for the next phase of its objective.
  damage_found,    ///< A rank reports that its checkpoint is damaged (RankFailed::damaged).
};

/// Conductor or cluster -> main thread: The run, or this generation, is over, its report closed.
struct RunFinished {
  std::int64_t step = 0;
  std::int32_t exit_code = 0;
  std::string text;
  GenerationEnd end = GenerationEnd::run_over;
};

/// Conductor -> reporter and other listeners: The run is over: write the remaining output.
struct CloseReport {};

/// Report stream, for a listener -> conductor: Everything is written.
struct ReportDrained {};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConcludeFailure)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::DrainOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::NodesReturned)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::CloseReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ReportDrained)
