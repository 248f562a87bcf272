#pragma once

#include <span>

#include "bench/ranks_support.hpp"

namespace train::bench {

/// One group of figures of a bench, chosen by its name.
struct Row {
  const char* name;
  const char* title;
  void (*run)(const Workplace& place);  ///< Throws std::exception if it cannot measure.
};

/// The main function of a bench of rows: runs the one that argv[1] names, or all. Blocks. Returns
/// the exit code: 0; 1: a row could not be measured; 2: there is no such row.
[[nodiscard]] int run_rows(std::span<const Row> rows, int argc, char** argv,
                           const BenchPaths& paths = {});

}  // namespace train::bench
