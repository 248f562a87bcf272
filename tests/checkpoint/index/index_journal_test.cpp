#include "checkpoint/index/index.hpp"

#include <fmt/format.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>

#include "checkpoint/format/layout.hpp"
#include "storage/files/digest.hpp"
#include "tests/checkpoint/index/index_fixture.hpp"
#include "tests/support/disks/memory_store.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::MemoryStore;
using train::test::save;
using train::test::SmallState;
using train::test::Steps;
using train::test::steps_of;
using train::test::TempDirectory;

TEST_CASE("index: the journals keep the newest, to the bit", "[checkpoint][index]") {
  const TempDirectory directory;
  MemoryStore store;
  const double odd = std::bit_cast<double>(std::uint64_t{0x7ff8000000000123});
  {
    auto index = CheckpointIndex::open(store, directory.path());
    REQUIRE(index);
    REQUIRE(index->log_steps(std::vector<StepRecord>{
        {.step = 1, .loss = odd, .grad_norm = -0.0, .lr = 1e-3, .tokens = 7}}));
    const auto journal = read_step_journal(store);
    REQUIRE(journal);
    REQUIRE(journal->steps.size() == 1);
    const StepRecord& step = journal->steps.at(1);
    REQUIRE(std::bit_cast<std::uint64_t>(step.loss) == 0x7ff8000000000123);
    REQUIRE(std::signbit(step.grad_norm));
    REQUIRE(step.lr == 1e-3);
    REQUIRE(step.tokens == 7);
  }
  constexpr std::int64_t all = 103'000;
  for (std::int64_t first = 2; first <= all; first += 1000) {
    // Every now and then the run is another process.
    auto index = CheckpointIndex::open(store, directory.path());
    REQUIRE(index);
    std::vector<StepRecord> records;
    for (std::int64_t step = first; step < first + 1000; ++step) {
      records.push_back({.step = step, .tokens = step});
    }
    REQUIRE(index->log_steps(records));
    for (int i = 0; i < 200; ++i) {
      REQUIRE(index->log_event("started", fmt::format("{}", first)));
    }
  }
  const auto journal = read_step_journal(store);
  REQUIRE(journal);
  REQUIRE(journal->steps.size() >= 100'000);
  REQUIRE(journal->steps.size() < 102'000);
  REQUIRE(journal->steps.rbegin()->first >= all);
  const auto events = read_events(store);
  REQUIRE(events);
  REQUIRE(events->size() >= 10'000);
  REQUIRE(events->size() < 11'000);
  REQUIRE(std::stoll(events->back().text) + 1000 > all);
}

TEST_CASE("index: reads what the first version of it wrote", "[checkpoint][index][CK-7]") {
  const TempDirectory directory;
  MemoryStore store;
  std::string chain;
  std::int64_t sequence = 0;
  for (const std::int64_t step : {10, 20, 30}) {
    auto fields = test::fields_at(step);
    fields.index_head = chain.empty() ? "" : fmt::format("{}:{}", sequence, chain);
    SmallState state;
    auto views = state.views();
    const auto outcome = test::write_checkpoint(directory.path(), fields, views);
    REQUIRE(outcome);
    const std::string entry =
        fmt::format(R"({{"step":{0},"directory":"step-000000{0}","state":"published",)"
                    R"("manifest_digest":"{1}","recorded_s":17}})",
                    step, outcome->manifest_digest);
    chain = storage::digest_text(fmt::format("{}\n+{}", chain, entry));
    store.content[fmt::format("journal/{:020}", ++sequence)] = fmt::format("+{}\n{}", entry, chain);
    store.content[fmt::format("checkpoint/{:020}", step)] = entry;
  }
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  REQUIRE_FALSE(index->report().rebuilt);
  REQUIRE(index->report().adopted.empty());
  REQUIRE(steps_of(*index) == Steps{10, 20, 30});
  REQUIRE(index->committed().front().recorded_s == 17);
  REQUIRE(store.content.size() == 3);  // the journal alone
  save(*index, directory.path(), 40);
  auto reopened = CheckpointIndex::open(store, directory.path());
  REQUIRE(reopened);
  REQUIRE_FALSE(reopened->report().rebuilt);
  REQUIRE(steps_of(*reopened) == Steps{10, 20, 30, 40});
}

namespace {

/// Counts what is asked of it.
class CountingStore final : public storage::KvStore {
 public:
  MemoryStore inner;
  std::size_t scans = 0;
  std::size_t operations = 0;
  std::size_t bytes_read = 0;

  Status write(const storage::WriteBatch& batch, storage::Durability durability) override {
    operations += batch.operations().size();
    return inner.write(batch, durability);
  }
  Status scan_from(std::string_view first, std::string_view prefix,
                   const Visitor& visitor) override {
    ++scans;
    return inner.scan_from(first, prefix, [&](std::string_view key, std::string_view value) {
      bytes_read += key.size() + value.size();
      return visitor(key, value);
    });
  }
  Result<std::optional<std::string>> last_key(std::string_view prefix) override {
    return inner.last_key(prefix);
  }
};

}  // namespace

TEST_CASE("index: the ten thousandth checkpoint costs what the first did", "[checkpoint][index]") {
  const TempDirectory directory;
  CountingStore store;
  auto index = CheckpointIndex::open(store, directory.path());
  REQUIRE(index);
  store.scans = store.operations = 0;
  for (std::int64_t step = 1; step <= 10'000; ++step) {
    REQUIRE(index->commit({.step = step,
                           .directory = checkpoint_name(step),
                           .manifest_digest = fmt::format("d{}", step)}));
  }
  REQUIRE(store.scans == 0);
  REQUIRE(store.operations <= 2 * 10'000);
  REQUIRE(index->entries().size() == 10'000);
}
