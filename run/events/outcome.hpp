#pragma once

#include <sys/types.h>
#include <cstdint>
#include <string>

namespace train::run {

/// Failure of a rank: of a part or stream, by the end of its process, or by the loss of another
/// rank.
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

/// Meaning of the end of a generation of ranks for the run.
enum class GenerationEnd : std::uint8_t {
  run_over,        ///< The run is over, too.
  rank_lost,       ///< A rank (RankFailed::lost) or its connections are lost.
  nodes_returned,  ///< Returned nodes are to take part (NodesReturned).
  phase_over,      ///< The run continues with ranks for the next phase of its objective.
  damage_found,    ///< A rank reports that its checkpoint is damaged (RankFailed::damaged).
};

/// End of a generation of ranks, or of the run.
struct RunFinished {
  std::int64_t step = 0;
  std::int32_t exit_code = 0;
  std::string text;
  GenerationEnd end = GenerationEnd::run_over;
};

/// End of a worker process.
struct WorkerEnd {
  std::int32_t rank = 0;
  pid_t pid = -1;      ///< -1: it could not be started.
  std::string text;    ///< "exit code 1", "killed by SIGKILL", or the reason why it could not be
                       ///< started.
  bool clean = false;  ///< Exit code 0.
  /// By an external signal, not one raised by its own error; or kExitWithoutHead.
  bool killed = false;
  /// By a signal that terminate_all() had not sent.
  bool unasked = false;
};

}  // namespace train::run
