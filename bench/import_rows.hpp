#pragma once

#include "bench/ranks_support.hpp"

// The row of bench_published about a run's start: import_rows.cpp says what it prints.
namespace train::bench {

void start_row(const Workplace& place);

}  // namespace train::bench
