#include <algorithm>
#include <filesystem>

#include "cli/command.hpp"
#include "cli/plot/plot_curves.hpp"
#include "configs/words/nearest.hpp"

namespace train::cli {
namespace {

constexpr std::int64_t kMostSmoothing = 1'000'000;

Status plot(const PlotOptions& options) {
  TRAIN_RETURN_IF_ERROR(write_plot(options));
  print(fmt::format("{}: {} of {} {}\n", options.out, options.what, options.runs.size(),
                    options.runs.size() == 1 ? "run" : "runs"));
  return {};
}

/// Error text, empty if `value` is one of `names`.
std::string unless_one_of(const char* option, const std::string& value,
                          const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), value) != names.end()
             ? std::string()
             : fmt::format("{} must be one of {}, not \"{}\"{}", option, fmt::join(names, ", "),
                           value, configs::did_you_mean(value, names));
}

std::string mistake_in(PlotOptions& options) {
  for (const std::string& mistake :
       {unless_one_of("--what", options.what, {"loss", "val", "grad_norm", "lr"}),
        unless_one_of("--x", options.x, {"steps", "tokens", "time"})}) {
    if (!mistake.empty()) {
      return mistake;
    }
  }
  if (options.smooth < 1 || options.smooth > kMostSmoothing) {
    return fmt::format("--smooth must be 1 .. {}, not {}", kMostSmoothing, options.smooth);
  }
  if (options.out.empty()) {
    options.out = options.what + ".png";
  }
  const std::string kind = std::filesystem::path(options.out).extension().string();
  return kind == ".png" || kind == ".svg" || kind == ".csv"
             ? std::string()
             : fmt::format("--out must end in .png, .svg or .csv, not \"{}\"", options.out);
}

}  // namespace

void describe_plot(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "plot", "Plot a metric of one or several runs as a picture, or write it as a table.");
  PlotOptions& options = command.runs(plot);
  command.app.add_option("runs", options.runs, "For example runs/quickstart")
      ->required()
      ->type_name("RUN_DIRECTORY");
  command.text("--out", options.out, "Picture .png or .svg, or table .csv; WHAT.png", "FILE");
  command.text("--what", options.what, "loss, val (validation loss), grad_norm, lr", "WHAT")
      ->capture_default_str();
  command.text("--x", options.x, "steps, tokens, time (of training, without pauses)", "WHAT")
      ->capture_default_str();
  command.integer("--smooth", options.smooth, "Moving average over this many points")
      ->default_str("1");
  command.app.add_flag("--log-x", options.log_x, "Logarithmic steps, tokens or time");
  command.check([&options] { return mistake_in(options); });
}

}  // namespace train::cli
