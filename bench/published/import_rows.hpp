#pragma once

#include "bench/ranks/ranks_support.hpp"

// Row of bench_published on a run's start; see import_rows.cpp.
namespace train::bench {

void start_row(const Workplace& place);

}  // namespace train::bench
