#pragma once

#include "bench/support/bench_rows.hpp"

// Rows of bench_published: models of scans.
namespace train::bench {

void scans_short_row(const Workplace& place);    ///< A step of 128 tokens, beside transformers.
void scans_long_row(const Workplace& place);     ///< 1024 tokens, against attention.
void scans_lengths_row(const Workplace& place);  ///< Time of a token in longer and longer rows.
void scans_shares_row(const Workplace& place);   ///< Where the time of a step goes.

}  // namespace train::bench
