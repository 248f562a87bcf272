#pragma once

#include <caf/meta/type_name.hpp>
#include <cstdint>

// The one totally ordered stream of commands that every rank follows (EX-1). `sequence` counts all
// commands of a generation from 0; `step` is the number of optimizer steps finished before the
// command.
namespace train::actors {

/// Conductor -> every rank: Run one optimizer step. The conductor sends it while the command window
/// has room.
struct TrainStep {
  std::uint64_t sequence = 0;
  std::int64_t step = 0;
};

/// Conductor -> every rank: Evaluate the weights on the validation lanes. The conductor sends it at
/// the steps of `eval.interval_steps`, while the command window has room.
struct Evaluate {
  std::uint64_t sequence = 0;
  std::int64_t step = 0;
};

/// Conductor -> every rank: Copy the state, and write the copy at once or when WriteSnapshot says
/// so. The conductor sends it after the steps that are to be saved.
struct TakeSnapshot {
  std::uint64_t sequence = 0;
  std::int64_t step = 0;
  std::int64_t replaces = -1;  ///< The one that waits and is given up for it, if it is good.
  bool write_now = false;
};

/// Conductor -> index, and every rank -> snapshot: The save of `step` is under way from here on. It
/// is sent beside the order of commands, when no other save is under way.
struct WriteSnapshot {
  std::int64_t step = 0;
};

/// Conductor -> every rank: Compute step `step` again without an update and find where NaN or Inf
/// first appears. The conductor sends it after a step whose loss or norm is not finite.
struct FindNonfinite {
  std::uint64_t sequence = 0;
  std::int64_t step = 0;
};

/// Conductor -> every rank: The last command. The rank finishes the saves that are under way, then
/// reports RankStopped.
struct StopRank {
  std::uint64_t sequence = 0;
};

/// Compute stream of a rank -> conductor: All work of one command has run on the rank. When every
/// rank has sent it, the conductor has a credit for the next command.
struct CommandFinished {
  std::uint64_t sequence = 0;
  std::int32_t rank = 0;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TrainStep& x) {
  return f(caf::meta::type_name("TrainStep"), x.sequence, x.step);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Evaluate& x) {
  return f(caf::meta::type_name("Evaluate"), x.sequence, x.step);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TakeSnapshot& x) {
  return f(caf::meta::type_name("TakeSnapshot"), x.sequence, x.step, x.replaces, x.write_now);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WriteSnapshot& x) {
  return f(caf::meta::type_name("WriteSnapshot"), x.step);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, FindNonfinite& x) {
  return f(caf::meta::type_name("FindNonfinite"), x.sequence, x.step);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StopRank& x) {
  return f(caf::meta::type_name("StopRank"), x.sequence);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CommandFinished& x) {
  return f(caf::meta::type_name("CommandFinished"), x.sequence, x.rank);
}

}  // namespace train::actors
