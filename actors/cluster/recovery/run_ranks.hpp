#pragma once

#include "base/result.hpp"
#include "run/prepared_run.hpp"

namespace train::actors {

/// Trains a prepared run until it is over, generation after generation: its ranks in this process,
/// or in processes of their own on all nodes. Blocks. Errors: those of run::run_generations().
[[nodiscard]] Result<run::RunFinished> run_ranks(run::PreparedRun& run);

}  // namespace train::actors
