#pragma once

#include "bench/ranks_support.hpp"

// The rows of bench_recovery. Each throws std::exception if it cannot measure.
namespace train::bench {

/// Kills workers of a run and says what each kill cost.
void kills_row(const Workplace& place);
/// What snapshots in memory add to the steps.
void snapshots_row(const Workplace& place);
/// Lets one of 2 or of 4 ranks throw, run out of memory or compute a NaN, and says how soon all
/// end.
void throws_row(const Workplace& place);
void throws_of_four_row(const Workplace& place);
/// A run of some minutes with a kill each minute: how much of its time made steps that stayed.
void goodput_row(const Workplace& place);
/// A start and a lost rank of a run with a million steps behind it, beside one with none.
void long_row(const Workplace& place);

}  // namespace train::bench
