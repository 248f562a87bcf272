#pragma once

#include <caf/meta/type_name.hpp>
#include <cstdint>

// Commands: the one totally ordered stream from the conductor that every rank follows (EX-1).
// `sequence` counts all commands of a generation from 0; `step` is the number of optimizer steps
// finished before the command.
namespace train::actors {

struct TrainStep {
  std::uint64_t sequence = 0;
  std::int64_t step = 0;
};

struct Evaluate {
  std::uint64_t sequence = 0;
  std::int64_t step = 0;
};

/// Copy the state; write it at once, or when WriteSnapshot says so.
struct TakeSnapshot {
  std::uint64_t sequence = 0;
  std::int64_t step = 0;
  std::int64_t replaces = -1;  ///< The one that waits and is given up for it, if it is good.
  bool write_now = false;
};

/// Conductor -> every rank and the index, beside the order of commands: the save of `step` is
/// under way from here on.
struct WriteSnapshot {
  std::int64_t step = 0;
};

/// Run step `step` again without an update and find where NaN or Inf first appears.
struct FindNonfinite {
  std::uint64_t sequence = 0;
  std::int64_t step = 0;
};

/// The last command: drain what is being saved, then report RankStopped.
struct StopRank {
  std::uint64_t sequence = 0;
};

/// Rank -> conductor: one command is done with there (a credit, when all ranks have sent it).
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
