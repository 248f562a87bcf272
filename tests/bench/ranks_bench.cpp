// Figures of many ranks: memory, speed, exposed communication, gating, the price of P1, and a model
// of ranks that are not here. Usage: ranks_bench [ROW]; a row is one of those below. A missed
// target is said, not failed. Two quiet cores are meant; the figures of a busy machine mislead.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

#include "tests/bench/ranks_rows.hpp"

namespace {

using namespace train::bench;

struct Row {
  const char* name;
  const char* title;
  void (*run)(const Workplace& place);
};
constexpr Row kRows[] = {
    {"memory", "memory of a rank, and its ratio to N or N/P", memory_row},
    {"ceiling", "what 2 cores of this machine give kernels alone", ceiling_row},
    {"speed", "2 ranks of 1 thread on 2 cores against 1 rank of 1 thread, 8 lanes", speed_row},
    {"exposed", "communication that no kernel hides, 2 ranks on loopback, 8 lanes", exposed_row},
    {"gating", "2 ranks, 8 lanes, 1 Gbit/s between them (6 layers x 384, lanes of 128 tokens)",
     gating_row},
    {"determinism", "precision.determinism = \"world\" against \"run\", quickstart, 8 lanes",
     determinism_row},
    {"simulate", "a step of ranks that are not here", simulate_row},
};

}  // namespace

int main(int argc, char* argv[]) {
  const std::string only = argc > 1 ? argv[1] : "";
  bool found = false;
  int failed = 0;
  const Workplace place;
  for (const Row& row : kRows) {
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
    for (const Row& row : kRows) {
      fmt::print(" {}", row.name);
    }
    fmt::print("\n");
    return 2;
  }
  return failed;
}
