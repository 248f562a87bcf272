// Figures of several ranks: memory, speed, exposed communication, gating, the cost of P1, and a
// model of larger numbers of ranks. Usage: ranks_bench [ROW]; a row is one of those below. A missed
// target is reported, not a failure. Needs two quiet cores; figures from a busy machine are
// misleading.
#include "bench/ranks/ranks_rows.hpp"
#include "bench/support/bench_rows.hpp"

namespace {

using namespace train::bench;

constexpr Row kRows[] = {
    {"memory", "memory of a rank, and its ratio to N or N/P", memory_row},
    {"ceiling", "what 2 cores of this machine give kernels alone", ceiling_row},
    {"speed", "2 ranks of 1 thread on 2 cores against 1 rank of 1 thread, 8 lanes", speed_row},
    {"exposed", "communication that no kernel hides, 2 ranks on loopback, 8 lanes", exposed_row},
    {"gating", "2 ranks, 8 lanes, 1 Gbit/s between them (6 layers x 384, lanes of 128 tokens)",
     gating_row},
    {"determinism", "precision.determinism = \"world\" against \"run\", quickstart, 8 lanes",
     determinism_row},
    {"simulate", "a step of ranks that are not here", simulate_row},
};

}  // namespace

int main(int argc, char* argv[]) { return run_rows(kRows, argc, argv); }
