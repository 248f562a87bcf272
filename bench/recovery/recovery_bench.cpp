// Figures of recovery: the cost of a lost worker to a run, and the cost of being prepared. Usage:
// bench_recovery [ROW]; a row is one of those below. A missed target is reported, not a failure.
// ACTORTRAIN_BENCH_KILLS, ACTORTRAIN_BENCH_THROWS: numbers; ACTORTRAIN_BENCH_GOODPUT_S: duration.
// Needs two quiet cores; figures from a busy machine are misleading.
#include "bench/recovery/recovery_rows.hpp"
#include "bench/support/bench_rows.hpp"

namespace {

using namespace train::bench;

constexpr Row kRows[] = {
    {"kills", "kill -9 of a worker until the first new step, quickstart, 2 ranks", kills_row},
    {"snapshots", "snapshots in memory every 10 steps, quickstart, 2 ranks", snapshots_row},
    {"throws", "an error in one rank until all have ended, quickstart, 2 ranks", throws_row},
    {"throws_4", "an error in one rank until all have ended, quickstart, 4 ranks",
     throws_of_four_row},
    {"long", "a start and a lost rank with 1,000,000 steps behind, quickstart, 2 ranks", long_row},
    {"goodput", "a run with a kill every 60 s, quickstart, 2 ranks", goodput_row},
};

}  // namespace

int main(int argc, char* argv[]) { return run_rows(kRows, argc, argv); }
