#include "cli/command.hpp"

namespace train::cli {
namespace {

Status refer_to_python(const LogOptions& options) {
  const std::string run = options.run_directory.empty() ? "RUN" : options.run_directory;
  return user_error(
      fmt::format("log: a command of the Python package; where the wheel or the .deb is installed, "
                  "call \"python3 -m actortrain log {} --to {}\"",
                  run, options.to.empty() ? "TRACKER" : options.to));
}

}  // namespace

/// The wheel's console script has this command itself; elsewhere its name says where it is.
void describe_log(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "log",
      "Send a run's metrics to a tracker. A command of the Python package: in the wheel, or "
      "\"python3 -m actortrain log\".");
  LogOptions& options = command.runs(refer_to_python);
  command.app.add_option("run_directory", options.run_directory, "For example runs/quickstart")
      ->type_name("RUN_DIRECTORY");
  command.text("--to", options.to, "Tracker, whose Python package must be installed",
               "wandb|mlflow|trackio");
  command.text("--project", options.project, "Name of the project; MLflow: of the experiment",
               "NAME");
  command.app.add_flag("--once", options.once, "Send what there is; do not follow the run");
}

}  // namespace train::cli
