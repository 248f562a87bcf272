#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/index/index.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"

namespace train::test {

using Steps = std::vector<std::int64_t>;

/// Of the committed checkpoints, in the index's order.
inline Steps steps_of(const checkpoint::CheckpointIndex& index) {
  Steps steps;
  for (const checkpoint::IndexEntry& entry : index.committed()) {
    steps.push_back(entry.step);
  }
  return steps;
}

/// Writes a checkpoint as a run does: the manifest carries the index's head, the record follows.
inline void save(checkpoint::CheckpointIndex& index, const std::filesystem::path& directory,
                 std::int64_t step) {
  SmallState state;
  auto views = state.views();
  auto fields = fields_at(step);
  fields.index_head = index.head();
  const auto outcome = write_checkpoint(directory, fields, views);
  REQUIRE(outcome);
  REQUIRE(index.commit(checkpoint::entry_of(outcome->manifest, outcome->manifest_digest)));
}

}  // namespace train::test
