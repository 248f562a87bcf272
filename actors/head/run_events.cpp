#include "actors/head/run_events.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/log.hpp"
#include "base/steady_time.hpp"

namespace train::actors {

void log_event(const PreparedRun& run, const char* kind, const std::string& text) {
  if (const Status logged = run.home->event(kind, text); !logged) {
    log_warning(fmt::format("index_incomplete {}", logged.error().message));
  }
}

void write_status(const PreparedRun& run, std::optional<RunFinished> outcome) {
  if (run.status == nullptr) {  // a simulation
    return;
  }
  RunStatus status;
  status.phase = outcome ? "over" : "starting";
  status.generation = run.generation;
  status.ranks = run.config().parallel.ranks;
  status.now_ns = steady_now_ns();
  status.progress.step = outcome ? outcome->step : run.first_step();
  status.outcome = std::move(outcome);
  if (const Status written = run.status->write(std::move(status)); !written) {
    log_warning(fmt::format("status_not_written {}", written.error().message));
  }
}

}  // namespace train::actors
