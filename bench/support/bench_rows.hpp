#pragma once

#include <span>

#include "bench/ranks/ranks_support.hpp"

namespace train::bench {

/// Group of figures of a benchmark, selected by name.
struct Row {
  const char* name;
  const char* title;
  void (*run)(const Workplace& place);  ///< Throws std::exception if it cannot measure.
};

/// Main function of a benchmark with rows: runs the one named by argv[1], or all. Blocks. Returns
/// the exit code: 0; 1: a row could not be measured; 2: unknown row.
[[nodiscard]] int run_rows(std::span<const Row> rows, int argc, char** argv,
                           const BenchPaths& paths = {});

}  // namespace train::bench
