#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <variant>

#include "actors/audit/audit_commands.hpp"
#include "actors/cli/options.hpp"
#include "actors/exit_codes.hpp"
#include "actors/report_error.hpp"
#include "actors/run/checkpoints_command.hpp"
#include "actors/run/export_command.hpp"
#include "actors/run/plot_command.hpp"
#include "actors/run/run_command.hpp"
#include "actors/run/scale_command.hpp"
#include "actors/run/signal_watcher.hpp"
#include "actors/run/status_command.hpp"
#include "actors/run/submit_command.hpp"
#include "configs/field_table.hpp"
#include "engine/base/log.hpp"

namespace train::actors {
namespace {

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return kExitFinished;
}

int execute(const cli::RunOptions& options) { return run_command(options); }
int execute(const cli::PlanOptions& options) { return plan_command(options); }
int execute(const cli::EvalOptions& options) { return eval_command(options); }
int execute(const cli::WorkerOptions& options) { return worker_command(options); }
int execute(const cli::GenerateOptions& options) { return generate_command(options); }
int execute(const cli::CheckpointsOptions& options) { return checkpoints_command(options); }
int execute(const cli::ExportOptions& options) { return export_command(options); }
int execute(const cli::ScaleOptions& options) { return scale_command(options); }
int execute(const cli::PlotOptions& options) { return plot_command(options); }
int execute(const cli::SubmitOptions& options) { return submit_command(options); }
int execute(const cli::ReplayOptions& options) { return replay_command(options); }
int execute(const cli::VerifyOptions& options) { return verify_command(options); }
int execute(const cli::StatusOptions& options) { return status_command(options); }
int execute(const cli::PrepareOptions& options) { return prepare_command(options); }
int execute(const cli::KeysOptions&) { return print(configs::describe_keys_markdown()); }
int execute(const cli::VersionOptions&) { return print("actortrain " ACTORTRAIN_VERSION "\n"); }
int execute(const cli::HelpOptions& options) { return print(options.text); }

int run_program(int argc, const char* const* argv) {
  const auto command = cli::parse(argc, argv);
  if (!command) {
    return report_error(command.error());
  }
  return std::visit([](const auto& options) { return execute(options); }, *command);
}

}  // namespace
}  // namespace train::actors

int main(int argc, char* argv[]) {
  train::actors::block_signals();
  try {
    return train::actors::run_program(argc, argv);
  } catch (const std::exception& error) {
    // A broken invariant or a device error outside the actors: one line, no stack trace.
    train::log_error(fmt::format("failed: {}", error.what()));
    return train::actors::kExitFailure;
  }
}
