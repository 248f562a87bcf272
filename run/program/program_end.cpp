#include "run/program/program_end.hpp"

#include <fmt/format.h>

#include "base/exit_codes.hpp"

namespace train::run {

ProgramEnd end_of(const RunProgram& program, const ProgramReports& reports) {
  const std::int64_t step = reports.step;
  if (!reports.nonfinite.empty()) {
    return {kExitFailure,
            fmt::format("not finite: {}, first {}; nothing was saved after it; start anew with "
                        "--fresh and a lower optimizer.lr or optimizer.grad_clip",
                        reports.nonfinite, reports.origin)};
  }
  if (!reports.save_failure.empty()) {
    return {kExitFailure,
            fmt::format("the last checkpoint was not saved: {}", reports.save_failure)};
  }
  if (reports.signal && !program.complete()) {
    return {kExitStopped,
            fmt::format(
                "stopped by signal {} after step {}, {}; run it again, without --fresh, to go on",
                *reports.signal, step, step > 0 ? "saved" : "nothing to save")};
  }
  if (program.job_over()) {
    return {kExitStopped,
            fmt::format("reached this start's last step, {}, and saved; run it again to continue",
                        step)};
  }
  if (program.phase_over()) {
    return {kExitStopped, fmt::format("the phase is over at step {}, saved", step), true};
  }
  if (!reports.report_failure.empty()) {  // Never fails a part before the last.
    return {kExitFailure, reports.report_failure};
  }
  const std::string early = program.early_end();
  return {kExitFinished, early.empty() ? fmt::format("finished at step {}", step)
                                       : fmt::format("finished at step {}: {}", step, early)};
}

ProgramEnd end_of_drain(const ProgramReports& reports, std::int64_t step, const std::string& place,
                        std::int64_t drain_s) {
  std::string where = "is lost";
  if (reports.local == step) {
    where = fmt::format("is complete in {}, not published", place);
  } else if (reports.local) {
    where = fmt::format("is lost; the one of step {} is complete in {}, not published",
                        *reports.local, place);
  }
  const std::string stands =
      reports.published ? fmt::format("the newest published one is of step {}", *reports.published)
                        : std::string("no checkpoint of this start was published");
  return {kExitFailure, fmt::format("the checkpoint of step {} {}: publishing took longer than "
                                    "checkpoint.drain_s = {}; {}",
                                    step, where, drain_s, stands)};
}

}  // namespace train::run
