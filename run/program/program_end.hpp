#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "run/program/run_program.hpp"

namespace train::run {

/// Reports on a program, from its first command to its last.
struct ProgramReports {
  std::int64_t step = 0;                   ///< Finished steps.
  std::optional<int> signal = {};          ///< Stop signal.
  std::string nonfinite = {};              ///< Values of a step that is not finite; empty: none.
  std::string origin = {};                 ///< Place of the first such value.
  std::string save_failure = {};           ///< Failure of the newest save; empty: it succeeded.
  std::string report_failure = {};         ///< Failure of a listener.
  std::optional<std::int64_t> local = {};  ///< Complete in the local location, not published.
  std::optional<std::int64_t> published = {};  ///< Newest published step.
};

/// End of a program, for the verdict on its generation.
struct ProgramEnd {
  int exit_code = 0;
  std::string text = {};
  bool phase_over = false;  ///< The run continues with ranks for its next phase.
};

/// End of a program whose saves are over. Pure.
[[nodiscard]] ProgramEnd end_of(const RunProgram& program, const ProgramReports& reports);

/// End of a program whose last save, of `step`, took longer than checkpoint.drain_s = `drain_s`;
/// `place`: the local location. Pure.
[[nodiscard]] ProgramEnd end_of_drain(const ProgramReports& reports, std::int64_t step,
                                      const std::string& place, std::int64_t drain_s);

}  // namespace train::run
