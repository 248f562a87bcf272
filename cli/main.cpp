#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <variant>

#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "cli/audit/audit_commands.hpp"
#include "cli/checkpoints/checkpoints_command.hpp"
#include "cli/export_command.hpp"
#include "cli/options.hpp"
#include "cli/plot/plot_command.hpp"
#include "cli/report_error.hpp"
#include "cli/run_command.hpp"
#include "cli/scale_command.hpp"
#include "cli/status_command.hpp"
#include "cli/submit/submit_command.hpp"
#include "configs/field_table.hpp"

namespace train::cli {
namespace {

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return kExitFinished;
}

int execute(const RunOptions& options) { return run_command(options); }
int execute(const PlanOptions& options) { return plan_command(options); }
int execute(const EvalOptions& options) { return eval_command(options); }
int execute(const WorkerOptions& options) { return worker_command(options); }
int execute(const GenerateOptions& options) { return generate_command(options); }
int execute(const CheckpointsOptions& options) { return checkpoints_command(options); }
int execute(const ExportOptions& options) { return export_command(options); }
int execute(const ScaleOptions& options) { return scale_command(options); }
int execute(const PlotOptions& options) { return plot_command(options); }
int execute(const SubmitOptions& options) { return submit_command(options); }
int execute(const ReplayOptions& options) { return replay_command(options); }
int execute(const VerifyOptions& options) { return verify_command(options); }
int execute(const StatusOptions& options) { return status_command(options); }
int execute(const PrepareOptions& options) { return prepare_command(options); }
int execute(const KeysOptions&) { return print(configs::describe_keys_markdown()); }
int execute(const VersionOptions&) { return print("actortrain " ACTORTRAIN_VERSION "\n"); }
int execute(const HelpOptions& options) { return print(options.text); }

int run_program(int argc, const char* const* argv) {
  const auto command = parse(argc, argv);
  if (!command) {
    return report_error(command.error());
  }
  return std::visit([](const auto& options) { return execute(options); }, *command);
}

}  // namespace
}  // namespace train::cli

int main(int argc, char* argv[]) {
  train::block_signals();
  try {
    return train::cli::run_program(argc, argv);
  } catch (const std::exception& error) {
    // A broken invariant or a device error outside the actors: one line, no stack trace.
    train::log_error(fmt::format("failed: {}", error.what()));
    return train::kExitFailure;
  }
}
