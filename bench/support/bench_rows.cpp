#include "bench/support/bench_rows.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

namespace train::bench {

int run_rows(std::span<const Row> rows, int argc, char** argv, const BenchPaths& paths) {
  const std::string only = argc > 1 ? argv[1] : "";
  bool found = false;
  int failed = 0;
  const Workplace place(paths);
  for (const Row& row : rows) {
    if (!only.empty() && only != row.name) {
      continue;
    }
    found = true;
    fmt::print("{}: {}\n", row.name, row.title);
    std::fflush(stdout);
    const auto begin = std::chrono::steady_clock::now();
    try {
      row.run(place);
    } catch (const std::exception& error) {
      fmt::print("  could not be measured: {}\n", error.what());
      failed = 1;
    }
    fmt::print("  ({:.0f} s)\n\n",
               std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    std::fflush(stdout);
  }
  if (!found) {
    fmt::print("no row \"{}\"; there are:", only);
    for (const Row& row : rows) {
      fmt::print(" {}", row.name);
    }
    fmt::print("\n");
    return 2;
  }
  return failed;
}

}  // namespace train::bench
