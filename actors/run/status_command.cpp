#include "actors/run/status_command.hpp"

#include "actors/exit_codes.hpp"
#include "actors/report_error.hpp"
#include "actors/run/checkpoints_actions.hpp"
#include "actors/run/signal_watcher.hpp"
#include "actors/status/status_view.hpp"

namespace train::actors {

int status_command(const cli::StatusOptions& options) {
  allow_signals();
  const auto view = read_status(options.run_directory, surroundings_now());
  if (!view) {
    return report_error(view.error());
  }
  checkpoints::print(options.json ? status_json(*view) : status_text(*view));
  return kExitFinished;
}

}  // namespace train::actors
