// Memory that the engine of one rank allocates, measured in a separate process.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string>

#include "bench/ranks/ranks_rows.hpp"
#include "configs/load_config.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "run/plan/run_plan.hpp"

namespace train::bench {
namespace {

struct Measured {
  engine::MemoryPlan allocated;
  std::size_t resident_bytes = 0;  ///< Growth of the process.
  std::int64_t parameters = 0;
};

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  std::size_t resident = 0;
  file >> pages >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

Measured measure(const engine::RankOptions& options) {
  Measured measured;
  const std::size_t before = resident_bytes();
  const auto engine = engine::make_rank_engine("cpu", options);
  if (!engine) {
    throw std::runtime_error(engine.error().message);
  }
  measured.resident_bytes = resident_bytes() - before;
  measured.allocated = (*engine)->allocated();
  for (const engine::UnitParameters& unit : (*engine)->plan().units()) {
    measured.parameters += unit.element_count;
  }
  return measured;
}

/// In a separate process: memory released by an earlier engine would hide the growth.
Measured measure_apart(const engine::RankOptions& options) {
  int ends[2];
  if (::pipe(ends) != 0) {
    throw std::runtime_error("no pipe");
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const Measured measured = measure(options);
    const bool written = ::write(ends[1], &measured, sizeof(measured)) == sizeof(measured);
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  Measured measured;
  const bool read = ::read(ends[0], &measured, sizeof(measured)) == sizeof(measured);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!read || status != 0) {
    throw std::runtime_error("an engine could not be measured");
  }
  return measured;
}

/// Fractions of N that a strategy keeps: parameters, gradients, optimizer state.
struct Table {
  const char* strategy;
  bool parameters_split, gradients_split, optimizer_split;
};
constexpr Table kTable[] = {{"none", false, false, false},
                            {"optimizer", false, false, true},
                            {"gradient", false, true, true},
                            {"full", true, true, true},
                            {"hybrid", true, true, true}};

}  // namespace

void memory_row(const Workplace& place) {
  Values worst;
  Values resident;
  for (const int ranks : {2, 4}) {
    for (const Table& table : kTable) {
      const bool hybrid = std::string(table.strategy) == "hybrid";
      if (hybrid && ranks == 2) {
        continue;  // Would equal full, or none.
      }
      const auto config =
          configs::load_config(
              ACTORTRAIN_SOURCE_DIR "/configs/quickstart.toml",
              joined(place.keys(),
                     {"model.layers=6", "model.heads=6", fmt::format("parallel.ranks={}", ranks),
                      fmt::format("parallel.group={}", hybrid * 2),
                      fmt::format("parallel.strategy=\"{}\"", table.strategy)}))
              .value();
      const Measured measured = measure_apart(run::engine_options(config, 0).value());
      const double parts = hybrid ? 2.0 : ranks;
      const auto whole = 4.0 * static_cast<double>(measured.parameters);
      const auto share = [&](std::size_t bytes, bool split, double times) {
        const double expected = whole * times / (split ? parts : 1.0);
        const double ratio = static_cast<double>(bytes) / expected;
        worst.add(std::abs(ratio - 1.0));
        return fmt::format("{:6.1f} MB {:.3f}", static_cast<double>(bytes) * 1e-6, ratio);
      };
      const engine::MemoryPlan& memory = measured.allocated;
      resident.add(static_cast<double>(measured.resident_bytes) /
                   static_cast<double>(memory.total_bytes()));
      print_result(
          fmt::format("{} on {} ranks: parameters; gradients; optimizer", table.strategy, ranks),
          fmt::format("{}; {}; {}   (all {:.1f} MB, resident {:.1f} MB)",
                      share(memory.parameters_bytes, table.parameters_split, 1.0),
                      share(memory.gradients_bytes, table.gradients_split, 1.0),
                      share(memory.optimizer_bytes, table.optimizer_split, 2.0),
                      static_cast<double>(memory.total_bytes()) * 1e-6,
                      static_cast<double>(measured.resident_bytes) * 1e-6));
    }
  }
  print_at_most("largest difference from N or N/P", Values{{worst.most()}}, 0.05);
  print_result("growth of the process / allocated", resident.text(3));
}

}  // namespace train::bench
