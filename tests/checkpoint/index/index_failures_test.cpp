// The index on a store that cannot write.

#include "checkpoint/index/index.hpp"

#include <catch2/catch.hpp>

#include "checkpoint/format/layout.hpp"
#include "tests/checkpoint/index/index_fixture.hpp"
#include "tests/support/disks/memory_store.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::MemoryStore;
using train::test::save;
using train::test::Steps;
using train::test::steps_of;
using train::test::TempDirectory;

TEST_CASE("index: a write that fails is the caller's to know", "[checkpoint][index][CK-7]") {
  const TempDirectory directory;
  MemoryStore store;
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  store.writes_until_failure = 0;
  REQUIRE_FALSE(index->commit({.step = 10, .directory = "step-00000010", .manifest_digest = "d"}));
  REQUIRE(index->entries().empty());
  REQUIRE(index->head().empty());
}

TEST_CASE("index: whatever write fails, the entries stay as they were",
          "[checkpoint][index][CK-7]") {
  const TempDirectory directory;
  MemoryStore store;
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  save(*index, directory.path(), 10);
  save(*index, directory.path(), 20);
  const std::string head = index->head();
  const auto content = store.content;
  store.writes_until_failure = 0;
  REQUIRE_FALSE(index->note(30, CheckpointState::writing));
  REQUIRE_FALSE(index->retire(10));
  REQUIRE_FALSE(index->set_aside(10, "x"));
  REQUIRE_FALSE(index->evaluated(10, 1.0));
  REQUIRE_FALSE(index->evaluated(30, 1.0));
  REQUIRE_FALSE(index->log_event("a", "b"));
  REQUIRE_FALSE(index->rebuild("x"));
  REQUIRE(index->head() == head);
  REQUIRE(index->notes().empty());
  REQUIRE(steps_of(*index) == Steps{10, 20});
  REQUIRE(store.content == content);
  store.writes_until_failure = -1;
  REQUIRE(index->retire(10));
  REQUIRE(steps_of(*index) == Steps{20});
}
