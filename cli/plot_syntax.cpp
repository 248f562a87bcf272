#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "cli/syntax.hpp"
#include "configs/nearest.hpp"

namespace train::cli {
namespace {

constexpr std::int64_t kMostSmoothing = 1'000'000;

using Names = std::vector<std::string>;

/// Nothing, if `value` is one of `names`.
Status one_of(const CLI::App& command, const char* option, const std::string& value,
              const Names& names) {
  if (std::find(names.begin(), names.end(), value) != names.end()) {
    return {};
  }
  return usage_error(
      command, fmt::format("{} must be one of {}, not \"{}\"{}", option, fmt::join(names, ", "),
                           value, configs::did_you_mean(value, names)));
}

Result<Command> finish_plot(const CLI::App& command, PlotOptions options) {
  TRAIN_RETURN_IF_ERROR(
      one_of(command, "--what", options.what, {"loss", "val", "grad_norm", "lr"}));
  TRAIN_RETURN_IF_ERROR(one_of(command, "--x", options.x, {"steps", "tokens", "time"}));
  if (options.smooth < 1 || options.smooth > kMostSmoothing) {
    return usage_error(
        command, fmt::format("--smooth must be 1 .. {}, not {}", kMostSmoothing, options.smooth));
  }
  if (options.out.empty()) {
    options.out = options.what + ".png";
  }
  const std::string kind = std::filesystem::path(options.out).extension().string();
  if (kind != ".png" && kind != ".svg" && kind != ".csv") {
    return usage_error(
        command, fmt::format("--out must end in .png, .svg or .csv, not \"{}\"", options.out));
  }
  return Command(std::move(options));
}

}  // namespace

void describe_plot(CLI::App& app, CommandSyntaxes& syntaxes) {
  CLI::App* command = app.add_subcommand(
      "plot", "Draw a quantity of one run or several: a picture, or a table for other programs.");
  const auto options = std::make_shared<PlotOptions>();
  command->add_option("runs", options->runs, "For example runs/quickstart")
      ->required()
      ->type_name("RUN_DIRECTORY");
  command->add_option("--out", options->out, "Picture .png or .svg, or table .csv; WHAT.png")
      ->type_name("FILE");
  command->add_option("--what", options->what, "loss, val (validation loss), grad_norm, lr")
      ->type_name("WHAT")
      ->capture_default_str();
  command->add_option("--x", options->x, "steps, tokens, time (of training, without pauses)")
      ->type_name("WHAT")
      ->capture_default_str();
  add_integer(*command, "--smooth", options->smooth, "Mean of so many points up to each one")
      ->default_str("1");
  command->add_flag("--log-x", options->log_x, "Logarithmic steps, tokens or time");
  syntaxes.push_back({command, [=] { return finish_plot(*command, *options); }});
}

}  // namespace train::cli
