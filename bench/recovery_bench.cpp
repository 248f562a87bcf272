// Figures of recovery: what a lost worker costs a run, and what being ready for it costs.
// Usage: bench_recovery [ROW]; a row is one of those below. A missed target is said, not failed.
// ACTORTRAIN_BENCH_KILLS, ACTORTRAIN_BENCH_THROWS: how many; ACTORTRAIN_BENCH_GOODPUT_S: how long.
// Two quiet cores are meant; the figures of a busy machine mislead.
#include "bench/bench_rows.hpp"
#include "bench/recovery_rows.hpp"

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
