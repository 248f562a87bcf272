#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "run/memory/memory_layout.hpp"
#include "run/memory/node_memory.hpp"
#include "run/plan/run_plan.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/runs/small_run.hpp"

// Multi-node run without its processes.
namespace train::test {

/// Plan of a small model under "full", with data in `directory`.
inline run::RunPlan plan_of_nodes(const std::filesystem::path& directory, std::int64_t nodes,
                                  std::int64_t ranks, bool buddies = true) {
  for (const char* file : {"train.bin", "val.bin"}) {
    write_bytes(directory / file, std::string(400, '\1'));
  }
  configs::RunConfig config = small_run(512);
  config.data.dir = directory.string();
  config.batch.lanes = 6;
  config.parallel.ranks = ranks;
  config.parallel.nodes = nodes;
  config.parallel.strategy = "full";
  config.recovery.buddy_snapshots = buddies;
  auto plan = run::plan_run(config);
  INFO((plan ? "" : plan.error().message));
  REQUIRE(plan.ok());
  return std::move(plan).value();
}

/// Writes the state after `step` steps for all ranks with room in `memory`.
inline void write_snapshots(const run::SharedSnapshots& memory, std::int64_t step) {
  const auto span = run::ranks_of(memory->layout());
  for (std::int64_t rank = span.first; rank < span.end; ++rank) {
    const auto local = static_cast<std::size_t>(rank - span.first);
    std::vector<std::byte> state(memory->layout().shard_bytes[local],
                                 static_cast<std::byte>(step + rank));
    const auto rows = static_cast<std::int64_t>(state.size());
    memory->write(rank, step,
                  std::vector{engine::StateView{"w", {rows}, 0, rows, state.data(), state.size()}});
  }
}

}  // namespace train::test
