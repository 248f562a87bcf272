#pragma once

#include "bench/ranks/ranks_support.hpp"

// Rows of bench_ranks. Each blocks, prints its measurements beside the targets, and throws
// std::runtime_error if it cannot be measured.
namespace train::bench {

/// Memory of a rank against N and N/P, for every strategy on 2 and 4 ranks.
void memory_row(const Workplace& place);
/// Limit of two cores of this machine: two processes of kernels against one.
void ceiling_row(const Workplace& place);
/// Two ranks of one thread against one.
void speed_row(const Workplace& place);
/// Communication not hidden behind kernels, on loopback.
void exposed_row(const Workplace& place);
/// Reducing after the last lane against after every lane, over 1 Gbit/s.
void gating_row(const Workplace& place);
/// Sums in the canonical tree against sums in order of arrival.
void determinism_row(const Workplace& place);
/// The model of a step against 1, 2 and 4 real ranks, and its predictions for 8, 64 and 512.
void simulate_row(const Workplace& place);

}  // namespace train::bench
