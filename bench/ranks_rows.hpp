#pragma once

#include "bench/ranks_support.hpp"

// The rows of bench_ranks. Each blocks, prints what it measured with the target beside it, and
// throws std::runtime_error if it cannot be measured.
namespace train::bench {

/// Memory of a rank against N and N/P, for every strategy on 2 and 4 ranks.
void memory_row(const Workplace& place);
/// What two cores of this machine give: two processes of kernels against one.
void ceiling_row(const Workplace& place);
/// Two ranks of one thread against one.
void speed_row(const Workplace& place);
/// Communication that kernels do not hide, on loopback.
void exposed_row(const Workplace& place);
/// Reducing after the last lane against after every lane, over 1 Gbit/s.
void gating_row(const Workplace& place);
/// Sums in the canonical tree against sums as they come.
void determinism_row(const Workplace& place);
/// The model of a step against 1, 2 and 4 real ranks, and what it says of 8, 64 and 512.
void simulate_row(const Workplace& place);

}  // namespace train::bench
