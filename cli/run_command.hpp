#pragma once

#include "cli/options.hpp"

namespace train::cli {

/// `actortrain run`: trains to the end, or until a signal. Returns the exit code. Errors are
/// printed as one line on stderr. REQUIRES: SIGINT, SIGTERM and SIGUSR1 are blocked in every
/// thread.
[[nodiscard]] int run_command(const RunOptions& options);

/// `actortrain worker`: one rank of a run whose launcher started this process.
[[nodiscard]] int worker_command(const WorkerOptions& options);

/// `actortrain plan`: who keeps what under every strategy, and what is sent.
[[nodiscard]] int plan_command(const PlanOptions& options);

/// `actortrain eval`: the evaluation of a checkpoint, or of each new one, on any number of ranks.
[[nodiscard]] int eval_command(const EvalOptions& options);

/// `actortrain generate`: continues a prompt with the newest (or named) checkpoint of a run.
[[nodiscard]] int generate_command(const GenerateOptions& options);

/// `actortrain data prepare`.
[[nodiscard]] int prepare_command(const PrepareOptions& options);

}  // namespace train::cli
