#pragma once

#include "actors/run/prepared_run.hpp"

namespace train::actors {

/// Prints what the trained model writes after run.sample_prompt, from the run's newest checkpoint;
/// nothing if no sample is asked for or the tokens are not bytes. Blocking.
void show_sample(const PreparedRun& run);

}  // namespace train::actors
