#include "actors/train/rank_actors.hpp"
#include "base/stop_signals.hpp"
#include "cli/command.hpp"
#include "cli/report/status_view.hpp"

namespace train::cli {
namespace {

/// Runs write their status every second.
constexpr auto kPatience = 5 * actors::kWatchPeriod;

Status show_status(const StatusOptions& options) {
  allow_signals();
  const auto view = watch_status({.folder = options.run_directory}, kPatience);
  TRAIN_RETURN_IF_ERROR(view);
  print(options.json ? status_json(*view) : status_text(*view));
  return {};
}

}  // namespace

void describe_status(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("status", "Show the progress, ranks and waits of a run, also while it runs.");
  StatusOptions& options = command.runs(show_status);
  command.run_directory(options.run_directory);
  command.app.add_flag("--json", options.json, "One JSON object, for programs");
}

}  // namespace train::cli
