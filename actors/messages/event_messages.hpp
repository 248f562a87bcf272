#pragma once

#include <cstdint>
#include <string>

#include "actors/messages/fields.hpp"
#include "run/events/outcome.hpp"
#include "run/events/rank_reports.hpp"

// Reports of ranks to the conductor, and of the conductor to the reporter, the index and itself.
namespace train::actors {

/// Part of StepFinished: A double as its bit pattern. The network layer of the actor framework
/// corrupts NaN, infinities, subnormals and -0, so no message field is a float.
using run::FloatBits;

/// Compute stream of every rank -> conductor -> reporter and index: The update of a step has run.
/// The conductor compares the ranks' messages and passes one message on for all of them. `step`
/// counts finished steps (1 after the first).
using run::StepFinished;

/// Compute stream of every rank -> conductor -> reporter and index: An evaluation has run, or the
/// questions of eval.choices are answered. The conductor compares the ranks' messages, concatenates
/// their documents, and passes one message on for all of them.
using run::EvaluationFinished;

/// Compute stream of every rank -> conductor: The next token of each text of the rank is chosen.
/// The conductor joins the ranks' messages; the next tokens, or the next command, follow from them.
using run::TokensSampled;

/// Conductor -> reporter: The texts sampled after a step (`run.sample_interval_steps`) are over.
using run::TextsSampled;

/// Index -> conductor -> reporter: A checkpoint is published and recorded.
using run::CheckpointWritten;

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
using run::CheckpointFailed;

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
using run::RankFailed;

/// Conductor or cluster -> itself: Sent 0.3 or 1 s after a failure that is only the consequence of
/// another, of whose cause no report has come in that time.
struct CauseTimeout {};

/// Conductor -> itself: Sent `checkpoint.drain_s` after the last command. Saves still in progress
/// are stopped.
struct DrainTimeout {};

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

/// Conductor or cluster -> main thread: The run, or this generation, is over, its report closed.
using run::RunFinished;

/// Conductor -> reporter and other listeners: The run is over: write the remaining output.
struct CloseReport {};

/// Report stream, for a listener -> conductor: Everything is written.
struct ReportDrained {};

}  // namespace train::actors

TRAIN_CROSSING_MESSAGE(train::run::StepFinished)
TRAIN_CROSSING_MESSAGE(train::run::EvaluationFinished)
TRAIN_CROSSING_MESSAGE(train::run::TokensSampled)
TRAIN_CROSSING_MESSAGE(train::run::TextsSampled)
TRAIN_CROSSING_MESSAGE(train::run::CheckpointWritten)
TRAIN_CROSSING_MESSAGE(train::actors::CheckpointLocal)
TRAIN_CROSSING_MESSAGE(train::actors::SaveFinished)
TRAIN_CROSSING_MESSAGE(train::run::CheckpointFailed)
TRAIN_CROSSING_MESSAGE(train::actors::CheckpointSkipped)
TRAIN_CROSSING_MESSAGE(train::actors::NonfiniteFound)
TRAIN_CROSSING_MESSAGE(train::actors::RankStopped)
TRAIN_CROSSING_MESSAGE(train::run::RankFailed)
TRAIN_LOCAL_MESSAGE(train::actors::CauseTimeout)
TRAIN_LOCAL_MESSAGE(train::actors::DrainTimeout)
TRAIN_CROSSING_MESSAGE(train::actors::ReportFailed)
TRAIN_CROSSING_MESSAGE(train::actors::StopRequested)
TRAIN_LOCAL_MESSAGE(train::actors::NodesReturned)
TRAIN_CROSSING_MESSAGE(train::run::RunFinished)
TRAIN_LOCAL_MESSAGE(train::actors::CloseReport)
TRAIN_LOCAL_MESSAGE(train::actors::ReportDrained)
