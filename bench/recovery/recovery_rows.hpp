#pragma once

#include "bench/ranks/ranks_support.hpp"

// Rows of bench_recovery. Each throws std::exception if it cannot measure.
namespace train::bench {

/// Kills workers of a run and prints the cost of each kill.
void kills_row(const Workplace& place);
/// Time that snapshots in memory add to the steps.
void snapshots_row(const Workplace& place);
/// Makes one of 2 or of 4 ranks throw, run out of memory or compute a NaN, and prints how soon all
/// end.
void throws_row(const Workplace& place);
void throws_of_four_row(const Workplace& place);
/// Run of several minutes with a kill each minute: the fraction of its time spent on steps that
/// were kept.
void goodput_row(const Workplace& place);
/// Start, and loss of a rank, of a run with a history of a million steps, compared with one
/// without.
void long_row(const Workplace& place);

}  // namespace train::bench
