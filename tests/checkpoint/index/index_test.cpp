#include "checkpoint/index/index.hpp"

#include <catch2/catch.hpp>
#include <cerrno>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/save/retention.hpp"
#include "storage/rocks_store.hpp"
#include "tests/checkpoint/index/index_fixture.hpp"
#include "tests/support/disks/crashing_disk.hpp"
#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/memory_store.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::MemoryStore;
using train::test::save;
using train::test::SmallState;
using train::test::Steps;
using train::test::steps_of;
using train::test::TempDirectory;
using train::test::write_at;

using Names = std::vector<std::string>;

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

// A run that finds its last step done says so and ends. Were it to rely on a name that only the
// cache has, a power cut could take back what was finished.
TEST_CASE("index: what it adopts outlasts a power cut, also after a kill before the sync",
          "[checkpoint][index][CK-1][CK-7]") {
  const bool lost_index = GENERATE(false, true);
  const TempDirectory directory;
  MemoryStore store;
  write_at(directory.path(), 25, SmallState());
  if (lost_index) {  // the checkpoint knows of an index that had records
    auto index = CheckpointIndex::open(store, directory.path());
    REQUIRE(index);
    save(*index, directory.path(), 26);
    store.content.clear();
  }
  const auto published = directory / checkpoint_name(lost_index ? 26 : 25);
  const auto incoming = directory / ".incoming-1-step";
  std::filesystem::rename(published, incoming);
  test::CrashingDisk disk(directory.path());
  {
    const test::RecordingDisk recorder(directory.path());
    REQUIRE(storage::disk_rename(incoming, published) == 0);  // and here the process is killed
    auto index = CheckpointIndex::open(store, directory.path());
    REQUIRE(index);
    REQUIRE(index->report().rebuilt == lost_index);
    REQUIRE_FALSE(index->report().adopted.empty());
    for (const test::RecordedCall& call : recorder.calls()) {
      disk.apply(call);
    }
  }
  const auto tree =
      disk.after_power_cut({.mode = test::UnsyncedEntries::Mode::none}, test::UnsyncedBytes::lost);
  CHECK(tree.contains(published.filename().string() + "/manifest.json"));
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

TEST_CASE("index: a change of any byte of any record breaks the chain",
          "[checkpoint][index][CK-7]") {
  const TempDirectory directory(test::quick_directory());
  MemoryStore store;
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  for (const std::int64_t step : {10, 20}) {
    save(*index, directory.path(), step);
  }
  const auto good = store.content;
  REQUIRE(read_index_content(store, index->head()).damage.empty());
  for (const auto& [key, value] : good) {
    for (std::size_t at = 0; at < value.size(); ++at) {
      INFO(key << " byte " << at << " of " << value.size());
      store.content[key][at] ^= 1;
      const IndexContent content = read_index_content(store, index->head());
      CHECK_FALSE(content.damage.empty());
      CHECK_FALSE(content.knows_head);
      store.content[key] = value;
    }
  }
}

TEST_CASE("index: a manifest that cannot be read is an error, and nothing is forgotten",
          "[checkpoint][index][CK-7]") {
  const TempDirectory directory;
  MemoryStore store;
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  for (const std::int64_t step : {10, 20}) {
    save(*index, directory.path(), step);
  }
  const auto before = store.content;
  const int error_number = GENERATE(EIO, ESTALE, 0);
  const std::string step = GENERATE("step-00000010", "step-00000020");
  std::int64_t at = 0;
  for (bool over = false; !over; ++at) {
    INFO("read " << at << " of " << step << " fails with " << error_number);
    const test::FailingReads reads(step, error_number, at);
    const auto reopened = CheckpointIndex::open(store, directory.path());
    over = !reads.failed();
    REQUIRE(reopened.ok() == over);
    if (!over) {
      REQUIRE(reopened.error().exit_code() == 1);
      REQUIRE_THAT(reopened.error().message, Catch::Contains(step + "/manifest.json"));
    }
    REQUIRE(store.content == before);
  }
  REQUIRE(at > 1);
}

TEST_CASE("index: what is under way is noted until it is committed or given up",
          "[checkpoint][index]") {
  const TempDirectory directory;
  MemoryStore store;
  {
    auto index = CheckpointIndex::open(store, directory.path());
    REQUIRE(index);
    save(*index, directory.path(), 10);
    const std::string head = index->head();
    REQUIRE(index->note(20, CheckpointState::writing));
    REQUIRE(index->note(20, CheckpointState::local));
    REQUIRE(index->note(30, CheckpointState::publishing));
    REQUIRE(index->note(40, CheckpointState::writing));
    REQUIRE(index->note(50, CheckpointState::local));
    REQUIRE(index->abandon(50));
    REQUIRE(index->abandon(60));
    REQUIRE(index->head() == head);  // no part of the promise
    REQUIRE(index->notes().size() == 3);
    REQUIRE_THROWS(index->note(50, CheckpointState::committed));
  }
  // Another process: nobody writes any more; what was on its way is where it came from.
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  REQUIRE(index->notes().size() == 2);
  REQUIRE(index->notes().at(20).state == CheckpointState::local);
  REQUIRE(index->notes().at(30).state == CheckpointState::local);
  save(*index, directory.path(), 20);
  REQUIRE(index->notes().size() == 1);
  REQUIRE(CheckpointIndex::open(store, directory.path())->notes().size() == 1);
  REQUIRE(steps_of(*index) == Steps{10, 20});
}

TEST_CASE("index: a retired checkpoint stays as history", "[checkpoint][index][CK-7]") {
  const TempDirectory directory;
  MemoryStore store;
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  for (const std::int64_t step : {10, 20, 30}) {
    save(*index, directory.path(), step);
  }
  REQUIRE(retire(directory.path(), 10));
  REQUIRE(index->retire(10));
  // A crash after the removal, before the record of it.
  REQUIRE(retire(directory.path(), 20));
  const auto stale = store.content;
  const auto check = [&](const CheckpointIndex& found) {
    REQUIRE(steps_of(found) == Steps{30});
    REQUIRE(found.entries().size() == 3);
    REQUIRE(found.entries()[0].state == CheckpointState::retired);
    REQUIRE(found.entries()[1].state == CheckpointState::retired);
    REQUIRE(found.entries()[1].tokens == 20 * 1024);
    REQUIRE(found.entries()[1].ranks == 1);
    REQUIRE(found.entries()[1].size_bytes > 0);
  };
  {
    auto reopened = CheckpointIndex::open(store, directory.path());
    REQUIRE(reopened);
    check(*reopened);
    REQUIRE(reopened->report().dropped == Names{"step-00000020"});
    REQUIRE(reopened->rebuild("a test"));
    check(*reopened);
    REQUIRE(reopened->report().rebuilt);
  }
  {
    // The rebuild is lasting; what it found carries heads of the chain before, and that is known.
    auto reopened = CheckpointIndex::open(store, directory.path());
    REQUIRE(reopened);
    check(*reopened);
    REQUIRE_FALSE(reopened->report().rebuilt);
  }
  // Of an index of yesterday the history up to then is kept.
  save(*index, directory.path(), 40);
  store.content = stale;
  auto behind = CheckpointIndex::open(store, directory.path());
  REQUIRE(behind);
  REQUIRE(steps_of(*behind) == Steps{30, 40});
  REQUIRE(behind->entries().size() == 4);
}

TEST_CASE("index: validation losses come before or after the commit and outlive a rebuild",
          "[checkpoint][index]") {
  const TempDirectory directory;
  MemoryStore store;
  {
    auto index = CheckpointIndex::open(store, directory.path());
    REQUIRE(index);
    REQUIRE(index->evaluated(5, 9.0));  // a step that is never saved
    REQUIRE(index->evaluated(10, 3.25));
    save(*index, directory.path(), 10);
    save(*index, directory.path(), 20);
    REQUIRE(index->evaluated(20, 2.5));
    const std::string head = index->head();
    REQUIRE(index->evaluated(20, 2.5));
    REQUIRE(index->head() == head);
    REQUIRE(index->evaluated(30, 2.0));
  }
  // A crash between the rename and the record: the loss waits in the store.
  write_at(directory.path(), 30, SmallState());
  for (int i = 0; i < 2; ++i) {
    auto index = CheckpointIndex::open(store, directory.path());
    REQUIRE(index);
    const auto committed = index->committed();
    REQUIRE(committed.size() == 3);
    REQUIRE(committed[0].validation_loss == 3.25);
    REQUIRE(committed[1].validation_loss == 2.5);
    REQUIRE(committed[2].validation_loss == 2.0);
    REQUIRE(index->rebuild("a test"));
  }
  for (const auto& [key, value] : store.content) {
    REQUIRE_FALSE(key == "loss/00000000000000000005");
  }
}

TEST_CASE("index: the loss of a retired step is that of its next commit", "[checkpoint][index]") {
  const TempDirectory directory;
  MemoryStore store;
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  save(*index, directory.path(), 10);
  REQUIRE(index->evaluated(10, 3.0));
  REQUIRE(index->retire(10));
  REQUIRE(index->evaluated(10, 2.5));
  CHECK(index->entries().front().validation_loss == 3.0);  // history
  std::filesystem::remove_all(directory / "step-00000010");
  save(*index, directory.path(), 10);
  CHECK(index->committed().front().validation_loss == 2.5);
}

TEST_CASE("index: losses of steps that are taken back go, those of checkpoints in place stay",
          "[checkpoint][index]") {
  const TempDirectory directory;
  MemoryStore store;
  const auto open = [&] {
    auto index = CheckpointIndex::open(store, directory.path());
    REQUIRE(index);
    return std::move(index).value();
  };
  {
    CheckpointIndex index = open();
    for (const std::int64_t step : {10, 20, 30}) {
      save(index, directory.path(), step);
      REQUIRE(index.evaluated(step, static_cast<double>(step)));
    }
    REQUIRE(index.retire(10));
    REQUIRE(index.retire(20));
    std::filesystem::remove_all(directory / "step-00000010");
    std::filesystem::remove_all(directory / "step-00000020");
    REQUIRE(index.evaluated(15, 15.0));
    REQUIRE(index.evaluated(25, 25.0));
    REQUIRE(index.take_back(15));
  }
  CheckpointIndex index = open();  // The chain has the changes.
  CHECK_FALSE(index.report().rebuilt);
  std::vector<std::optional<double>> losses;
  for (const IndexEntry& entry : index.entries()) {
    losses.push_back(entry.validation_loss);
  }
  CHECK(losses == std::vector<std::optional<double>>{10.0, std::nullopt, 30.0});
  save(index, directory.path(), 25);  // Evaluated by the steps before alone.
  CHECK_FALSE(index.committed().front().validation_loss.has_value());
  const std::string head = index.head();
  REQUIRE(index.take_back(15));
  CHECK(index.head() == head);  // Nothing was left.
}

TEST_CASE("index: set aside is forgotten with a reason", "[checkpoint][index]") {
  const TempDirectory directory;
  MemoryStore store;
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  save(*index, directory.path(), 10);
  save(*index, directory.path(), 20);
  REQUIRE(set_aside(directory / "step-00000020"));
  REQUIRE(index->set_aside(20, "shard-00000\nis cut"));
  REQUIRE(steps_of(*index) == Steps{10});
  REQUIRE(index->entries().size() == 1);
  const auto events = read_events(store);
  REQUIRE(events);
  REQUIRE(events->size() == 1);
  REQUIRE(events->front().kind == "set_aside");
  REQUIRE(events->front().text == "step=20 shard-00000 is cut");
  save(*index, directory.path(), 20);  // the run comes by again
  auto reopened = CheckpointIndex::open(store, directory.path());
  REQUIRE(reopened);
  REQUIRE(steps_of(*reopened) == Steps{10, 20});
  REQUIRE_FALSE(reopened->report().rebuilt);
}
