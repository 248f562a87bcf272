#include "actors/train/rank_actors.hpp"
#include "base/process/stop_signals.hpp"
#include "cli/board/run_metrics.hpp"
#include "cli/command.hpp"
#include "cli/report/status_view.hpp"

namespace train::cli {
namespace {

/// Runs write their status every second.
constexpr auto kPatience = 5 * actors::kWatchPeriod;

/// Mean rate of all steps; nullopt: unknown, or the file is too large to wait for.
std::optional<double> mean_rate_of(const storage::Within& run) {
  constexpr int kMostPieces = 256;  // About a million steps.
  RunMetrics metrics(run);
  for (int piece = 0; metrics.read_on(); ++piece) {
    if (piece == kMostPieces) {
      return std::nullopt;
    }
  }
  const MetricHistory::Column* rates = metrics.history().find("tokens_per_second");
  MetricBin all;
  for (const MetricBin& bin : rates != nullptr ? rates->bins : std::vector<MetricBin>()) {
    all.add(bin);
  }
  return all.count > 0 ? std::optional(rates->mean(all)) : std::nullopt;
}

Status show_status(const StatusOptions& options) {
  allow_signals();
  const storage::Within run = {.folder = options.run_directory};
  const auto view = TRAIN_TRY(watch_status(run, kPatience));
  const bool ended = view.condition != RunCondition::running;
  print(options.json ? status_json(view)
                     : status_text(view, ended ? mean_rate_of(run) : std::nullopt));
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
