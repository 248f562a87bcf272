// Figures of checkpoints: cost of saving to the steps, disk, memory, listing, restoring. Usage:
// bench_checkpoint [ROW]; a row is one of those below. A missed target is reported, not a failure.
// Needs two quiet cores; figures from a busy machine are misleading.
#include "bench/checkpoint/checkpoint_rows.hpp"
#include "bench/support/bench_rows.hpp"

namespace {

using namespace train::bench;

constexpr Row kRows[] = {
    {"stall", "steps beside a save against the others, quickstart, all cores", stall_row},
    {"stall_large", "the same, 8 layers x 512, one place", stall_large_row},
    {"stall_large_two", "the same, 8 layers x 512, two places", stall_large_two_row},
    {"stall_spare", "the same, 1 thread on 2 cores", stall_spare_row},
    {"write", "1 GiB as a shard against plain writes, alternating", write_row},
    {"memory", "resident memory while saving, against the state's size", memory_row_of_saves},
    {"list", "actortrain checkpoints list, 10,000 checkpoints", list_row},
    {"resume", "from a checkpoint back to weights and moments", resume_row},
};

}  // namespace

int main(int argc, char* argv[]) { return run_rows(kRows, argc, argv); }
