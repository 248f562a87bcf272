#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/meta/type_name.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/messages/float_bits.hpp"

// Events: what ranks report to the conductor, and the conductor to the reporter.
namespace train::actors {

/// From every rank; the conductor compares them and passes one on. `step` counts finished steps (1
/// after the first).
struct StepFinished {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  FloatBits loss;
  FloatBits grad_norm;
  FloatBits lr;
  bool poisoned = false;  ///< Loss or norm not finite: no weight was changed.
  bool has_digest = false;
  std::uint64_t weights_digest = 0;  ///< Of the rank's rows; of all once the conductor has summed.
  /// engine::tensor_digests() of all that a checkpoint holds; as weights_digest. Empty: no digest.
  std::vector<std::uint64_t> tensor_digests = {};
  std::vector<std::uint64_t> unit_grad_norms;  ///< Bit patterns of doubles, by unit.
  /// engine::words_of() the optimizer's exact sums: of the rank's rows, of all once the conductor
  /// has added them up. Empty where none are made.
  std::vector<std::uint64_t> optimizer_sums = {};
};

/// From every rank, as StepFinished.
struct EvaluationFinished {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  FloatBits cross_entropy;  ///< Nats per token.
  FloatBits accuracy;
};

/// Published and recorded.
struct CheckpointWritten {
  std::int64_t step = 0;
  std::string directory;
  std::uint64_t size_bytes = 0;
  std::int64_t elapsed_ns = 0;
};

/// Index -> conductor: whole in the local place, not yet published.
struct CheckpointLocal {
  std::int64_t step = 0;
};

/// Index -> conductor: nothing of the save of `step` is under way any more, whether it was
/// published or given up; the next one may begin.
struct SaveFinished {
  std::int64_t step = 0;
};

/// The save failed; training goes on, the checkpoints before it stand.
struct CheckpointFailed {
  std::int64_t step = 0;
  std::int32_t rank = -1;  ///< Whose shard; -1: the checkpoint as a whole.
  std::string text;
};

/// A newer snapshot took the place of one that waited for a save to be over.
struct CheckpointSkipped {
  std::int64_t step = 0;
};

/// From every rank; all say the same.
struct NonfiniteFound {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  std::string text;  ///< "lane 3, block 1, backward" or "nowhere when computed again".
};

struct RankStopped {
  std::int32_t rank = 0;
};

/// A part of the rank failed: the generation is over.
struct RankFailed {
  std::int32_t rank = 0;
  std::string text;  ///< Part, layer, step and what was thrown, one line.
  std::int32_t exit_code = 1;
  /// It only lost another rank: the cause is elsewhere, and its own report may still be on its way.
  bool consequence = false;
  /// Its process was killed or cannot be reached: what it did can be done again.
  bool lost = false;
};

/// Conductor -> itself: no better cause has come in time.
struct ConcludeFailure {};

/// Conductor -> itself: the last save has had its time.
struct DrainOver {};

/// Reporter: it could not write (reported once, ends the run's exit code at 1).
struct ReportFailed {
  std::string text;
};

/// SIGINT or SIGTERM, as a message.
struct StopRequested {
  std::int32_t signal = 0;
};

/// Head -> conductor: nodes that did not take part are back, and the generation is over so that all
/// ranks start again with theirs.
struct NodesReturned {};

/// Conductor -> whoever waits for the run.
struct RunFinished {
  std::int64_t step = 0;
  std::int32_t exit_code = 0;
  std::string text;
  bool rank_lost = false;  ///< By the loss of a rank (RankFailed::lost), or of its connections.
  bool for_nodes = false;  ///< By NodesReturned; it counts as the loss of a rank.
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StepFinished& x) {
  return f(caf::meta::type_name("StepFinished"), x.step, x.rank, x.loss, x.grad_norm, x.lr,
           x.poisoned, x.has_digest, x.weights_digest, x.tensor_digests, x.unit_grad_norms,
           x.optimizer_sums);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, EvaluationFinished& x) {
  return f(caf::meta::type_name("EvaluationFinished"), x.step, x.rank, x.cross_entropy, x.accuracy);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CheckpointWritten& x) {
  return f(caf::meta::type_name("CheckpointWritten"), x.step, x.directory, x.size_bytes,
           x.elapsed_ns);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CheckpointLocal& x) {
  return f(caf::meta::type_name("CheckpointLocal"), x.step);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SaveFinished& x) {
  return f(caf::meta::type_name("SaveFinished"), x.step);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CheckpointFailed& x) {
  return f(caf::meta::type_name("CheckpointFailed"), x.step, x.rank, x.text);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CheckpointSkipped& x) {
  return f(caf::meta::type_name("CheckpointSkipped"), x.step);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, NonfiniteFound& x) {
  return f(caf::meta::type_name("NonfiniteFound"), x.step, x.rank, x.text);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankStopped& x) {
  return f(caf::meta::type_name("RankStopped"), x.rank);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankFailed& x) {
  return f(caf::meta::type_name("RankFailed"), x.rank, x.text, x.exit_code, x.consequence, x.lost);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ReportFailed& x) {
  return f(caf::meta::type_name("ReportFailed"), x.text);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StopRequested& x) {
  return f(caf::meta::type_name("StopRequested"), x.signal);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RunFinished& x) {
  return f(caf::meta::type_name("RunFinished"), x.step, x.exit_code, x.text);
}

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ConcludeFailure)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::DrainOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::NodesReturned)
