#pragma once

#include "bench/ranks/ranks_support.hpp"

// Rows of bench_checkpoint. Each blocks, prints its measurements beside the targets, and throws
// std::runtime_error if it cannot be measured.
namespace train::bench {

/// Cost of saving to the steps: quickstart, with one location and with two.
void stall_row(const Workplace& place);
/// stall_row() for a model of 25 M weights.
void stall_large_row(const Workplace& place);
void stall_large_two_row(const Workplace& place);
/// stall_row() with a core left free of computation.
void stall_spare_row(const Workplace& place);
/// Memory use of saving.
void memory_row_of_saves(const Workplace& place);
/// Writing a shard, compared with the disk alone.
void write_row(const Workplace& place);
/// `actortrain checkpoints list` for a run with 10,000 checkpoints.
void list_row(const Workplace& place);
/// Restoring weights from a checkpoint.
void resume_row(const Workplace& place);

}  // namespace train::bench
