#include "checkpoint/index.hpp"

#include <catch2/catch.hpp>

#include "storage/rocks_store.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/support/memory_store.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::MemoryStore;
using train::test::SmallState;
using train::test::TempDirectory;
using train::test::write_at;

namespace {

std::vector<std::int64_t> steps_of(const CheckpointIndex& index) {
  std::vector<std::int64_t> steps;
  for (const IndexEntry& entry : index.committed()) {
    steps.push_back(entry.step);
  }
  return steps;
}

using Steps = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

/// Writes a checkpoint as a run does: the manifest carries the index's head, the record follows.
void save(CheckpointIndex& index, const std::filesystem::path& directory, std::int64_t step) {
  SmallState state;
  auto views = state.views();
  auto fields = test::fields_at(step);
  fields.index_head = index.head();
  const auto outcome = write_checkpoint(directory, fields, views);
  REQUIRE(outcome);
  REQUIRE(index.commit(entry_of(outcome->manifest, outcome->manifest_digest)));
}

}  // namespace

TEST_CASE("index: records, forgets and remembers", "[checkpoint][index][CK-7]") {
  const TempDirectory directory;
  const auto checkpoints = directory / "checkpoints";
  std::string head;
  {
    auto store = storage::RocksStore::open(directory / "index");
    REQUIRE(store);
    auto index = CheckpointIndex::open(**store, checkpoints);
    REQUIRE(index);
    REQUIRE(index->head().empty());
    for (const std::int64_t step : {10, 20, 30}) {
      save(*index, checkpoints, step);
    }
    REQUIRE(steps_of(*index) == Steps{10, 20, 30});
    head = index->head();
    REQUIRE(index->commit(index->entries()[2]));
    REQUIRE(index->head() == head);
    std::filesystem::remove_all(checkpoints / "step-00000010");
    REQUIRE(index->retire(10));
    REQUIRE(index->retire(10));
    REQUIRE(index->retire(77));
    REQUIRE(index->head() != head);
    head = index->head();
  }
  auto store = storage::RocksStore::open(directory / "index");
  REQUIRE(store);
  auto index = CheckpointIndex::open(**store, checkpoints);
  REQUIRE(index);
  REQUIRE(steps_of(*index) == Steps{20, 30});
  REQUIRE(index->head() == head);
  REQUIRE(index->report().adopted.empty());
  REQUIRE(index->report().dropped.empty());
  REQUIRE_FALSE(index->report().rebuilt);
}

TEST_CASE("index: the directory is the truth", "[checkpoint][index][CK-7]") {
  const TempDirectory directory;
  MemoryStore store;
  {
    auto index = CheckpointIndex::open(store, directory.path());
    REQUIRE(index);
    for (const std::int64_t step : {10, 20, 30}) {
      save(*index, directory.path(), step);
    }
  }
  // A crash between rename and record; one removed by hand; one replaced by another.
  write_at(directory.path(), 25, SmallState());
  std::filesystem::remove_all(directory / "step-00000010");
  std::filesystem::remove_all(directory / "step-00000020");
  write_at(directory.path(), 20, SmallState(9));
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  REQUIRE_FALSE(index->report().rebuilt);
  REQUIRE(index->report().dropped == Names{"step-00000010", "step-00000020"});
  REQUIRE(index->report().adopted == Names{"step-00000020", "step-00000025"});
  REQUIRE(steps_of(*index) == Steps{20, 25, 30});
  auto again = CheckpointIndex::open(store, directory.path());
  REQUIRE(again);
  REQUIRE(again->report().adopted.empty());
  REQUIRE(again->report().dropped.empty());
}

TEST_CASE("index: a store that forgot its newest writes is noticed", "[checkpoint][index][CK-7]") {
  const TempDirectory directory;
  MemoryStore store;
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  save(*index, directory.path(), 10);
  const auto old_content = store.content;
  save(*index, directory.path(), 20);
  save(*index, directory.path(), 30);
  for (const bool everything : {false, true}) {
    store.content = everything ? decltype(store.content){} : old_content;
    auto reopened = CheckpointIndex::open(store, directory.path());
    REQUIRE(reopened);
    REQUIRE(reopened->report().rebuilt);
    REQUIRE_THAT(reopened->report().reason, Catch::Contains("step-00000030"));
    REQUIRE(steps_of(*reopened) == Steps{10, 20, 30});
    // The repair is lasting, and the next checkpoint continues from it.
    auto third = CheckpointIndex::open(store, directory.path());
    REQUIRE(third);
    REQUIRE_FALSE(third->report().rebuilt);
  }
  auto last = CheckpointIndex::open(store, directory.path());
  REQUIRE(last);
  save(*last, directory.path(), 40);
  auto after = CheckpointIndex::open(store, directory.path());
  REQUIRE(after);
  REQUIRE_FALSE(after->report().rebuilt);
  REQUIRE(steps_of(*after) == Steps{10, 20, 30, 40});
}

TEST_CASE("index: every changed or lost key is repaired", "[checkpoint][index][CK-7]") {
  const TempDirectory directory;
  MemoryStore store;
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  for (const std::int64_t step : {10, 20}) {
    save(*index, directory.path(), step);
  }
  const auto good = store.content;
  REQUIRE(good.size() == 2);
  for (const auto& [key, value] : good) {
    for (const bool lose : {true, false}) {
      INFO(key << " lost: " << lose);
      store.content = good;
      if (lose) {
        store.content.erase(key);
      } else {
        store.content[key][value.size() / 2] ^= 1;
      }
      auto reopened = CheckpointIndex::open(store, directory.path());
      REQUIRE(reopened);
      // The newest record lost is what a crash between publication and record leaves.
      const bool newest_lost = lose && key == good.rbegin()->first;
      REQUIRE(reopened->report().rebuilt == !newest_lost);
      REQUIRE(steps_of(*reopened) == Steps{10, 20});
    }
  }
}

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
