#pragma once

#include "bench/ranks_support.hpp"

// The rows of bench_checkpoint. Each blocks, prints what it measured with the target beside it, and
// throws std::runtime_error if it cannot be measured.
namespace train::bench {

/// What saving costs the steps: quickstart, one place and two.
void stall_row(const Workplace& place);
/// The same for a model of 25 M weights.
void stall_large_row(const Workplace& place);
void stall_large_two_row(const Workplace& place);
/// The same again, with a core that does not compute.
void stall_spare_row(const Workplace& place);
/// Memory of saving.
void memory_row_of_saves(const Workplace& place);
/// A shard's way to the disk against the disk alone.
void write_row(const Workplace& place);
/// `actortrain checkpoints list` of a run with 10,000 checkpoints.
void list_row(const Workplace& place);
/// From a checkpoint back to weights.
void resume_row(const Workplace& place);

}  // namespace train::bench
