#pragma once

#include <functional>

#include "actors/messages/event_messages.hpp"
#include "actors/run/prepared_run.hpp"

namespace train::actors {

/// Starts all ranks of a prepared run, and returns when none of them does anything any more.
using GenerationRunner = std::function<Result<RunFinished>(PreparedRun& run)>;

/// Generations of ranks until the run is over: a rank that is lost ends one of them, not the run.
/// The next one goes on from the newest checkpoint, with fewer ranks where starts are lost without
/// progress. Blocking. Errors: those of `run_generation` and of find_start_again().
[[nodiscard]] Result<RunFinished> run_generations(PreparedRun& run,
                                                  const GenerationRunner& run_generation);

}  // namespace train::actors
