#include "cli/status_command.hpp"

#include "base/exit_codes.hpp"
#include "base/signal_watcher.hpp"
#include "cli/checkpoints/checkpoints_actions.hpp"
#include "cli/report_error.hpp"
#include "cli/status_view.hpp"

namespace train::cli {
using namespace actors;

int status_command(const StatusOptions& options) {
  allow_signals();
  const auto view = read_status(options.run_directory, surroundings_now());
  if (!view) {
    return report_error(view.error());
  }
  checkpoints::print(options.json ? status_json(*view) : status_text(*view));
  return kExitFinished;
}

}  // namespace train::cli
