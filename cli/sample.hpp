#pragma once

#include "actors/head/prepared_run.hpp"

namespace train::cli {

/// Prints what the trained model writes after run.sample_prompt, from the run's newest checkpoint;
/// nothing if no sample is asked for or the tokens are not bytes. Blocking.
void show_sample(const actors::PreparedRun& run);

}  // namespace train::cli
