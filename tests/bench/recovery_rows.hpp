#pragma once

#include "tests/bench/ranks_support.hpp"

// The rows of bench_recovery. Each throws std::exception if it cannot measure.
namespace train::bench {

/// Kills workers of a run and says what each kill cost.
void kills_row(const Workplace& place);
/// What snapshots in memory add to the steps.
void snapshots_row(const Workplace& place);
/// A whole run with a kill a minute against one without.
void goodput_row(const Workplace& place);

}  // namespace train::bench
