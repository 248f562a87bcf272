#pragma once

#include "actors/cli/options.hpp"

namespace train::actors {

/// `actortrain run`: trains to the end, or until a signal. Returns the exit code. Errors are
/// printed as one line on stderr. REQUIRES: SIGINT, SIGTERM and SIGUSR1 are blocked in every
/// thread.
[[nodiscard]] int run_command(const cli::RunOptions& options);

/// `actortrain worker`: one rank of a run whose launcher started this process.
[[nodiscard]] int worker_command(const cli::WorkerOptions& options);

/// `actortrain plan`: who keeps what under every strategy, and what is sent.
[[nodiscard]] int plan_command(const cli::PlanOptions& options);

/// `actortrain eval`: the evaluation of a checkpoint, or of each new one, on any number of ranks.
[[nodiscard]] int eval_command(const cli::EvalOptions& options);

/// `actortrain generate`: continues a prompt with the newest (or named) checkpoint of a run.
[[nodiscard]] int generate_command(const cli::GenerateOptions& options);

/// `actortrain data prepare`.
[[nodiscard]] int prepare_command(const cli::PrepareOptions& options);

}  // namespace train::actors
