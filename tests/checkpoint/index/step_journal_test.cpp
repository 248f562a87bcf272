#include "checkpoint/index/step_journal.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "checkpoint/index/index.hpp"
#include "checkpoint/index/index_content.hpp"
#include "tests/support/disks/memory_store.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::checkpoint {
namespace {

using Digests = std::vector<std::uint64_t>;

StepRecord record_of(std::int64_t step) {
  return {.step = step,
          .loss = 2.5,
          .grad_norm = std::bit_cast<double>(std::uint64_t{0x7ff0000000000001}),
          .lr = -0.0,
          .tokens = 7 * step,
          .unit_grad_norms = {0, ~std::uint64_t{0}, 5},
          .tensor_digests = {1, 0x123456789abcdef0}};
}

TEST_CASE("step journal: a step is read back to the bit", "[checkpoint][index]") {
  const StepRecord step = record_of(3);
  const auto read = parse_step(3, step_text(step));
  REQUIRE(read);
  CHECK(read->step == 3);
  CHECK(step_text(*read) == step_text(step));
  CHECK(std::bit_cast<std::uint64_t>(read->grad_norm) == 0x7ff0000000000001);
  CHECK(read->unit_grad_norms == step.unit_grad_norms);
  CHECK(parse_digests(digests_text(step.tensor_digests)) == step.tensor_digests);
  CHECK(parse_digests("") == Digests());
}

TEST_CASE("step journal: reads what earlier versions wrote", "[checkpoint][index]") {
  const auto read = parse_step(1, "4004000000000000 3ff0000000000000 0000000000000000 64");
  REQUIRE(read);
  CHECK(read->loss == 2.5);
  CHECK(read->tokens == 64);
  CHECK(read->unit_grad_norms.empty());
}

TEST_CASE("step journal: what is no record is refused", "[checkpoint][index]") {
  for (const char* text : {"", "1", "1 2 3", "1 2 3 x", "g 2 3 4", "1 2 3 4 g", "1 2 3 4  5"}) {
    INFO(text);
    CHECK_FALSE(parse_step(1, text));
  }
  CHECK_FALSE(parse_digests("1 x"));
  CHECK_FALSE(parse_digests("10000000000000000"));  // does not fit
}

TEST_CASE("step journal: digests join their steps; damage is named", "[checkpoint][index]") {
  test::MemoryStore store;
  storage::WriteBatch batch;
  for (std::int64_t step = 1; step <= 4; ++step) {
    put_step(batch, record_of(step));
  }
  REQUIRE(store.write(batch, storage::Durability::buffered));
  store.content[index_keys::of(index_keys::kStep, 2)] = "torn";
  store.content[index_keys::of(index_keys::kDigest, 3)] = "torn";
  const auto journal = read_step_journal(store);
  REQUIRE(journal);
  CHECK(journal->steps.size() == 3);
  CHECK(journal->unreadable == std::vector<std::int64_t>{2, 3});
  CHECK(journal->steps.at(1).tensor_digests == record_of(1).tensor_digests);
  CHECK(journal->steps.at(3).tensor_digests.empty());
}

TEST_CASE("step journal: a record whose key names no step is damage, not a step",
          "[checkpoint][index]") {
  test::MemoryStore store;
  store.content[index_keys::of(index_keys::kStep, 1)] = step_text(record_of(1));
  store.content[index_keys::of(index_keys::kStep, 1) + "x"] = step_text(record_of(2));
  const auto journal = read_step_journal(store);
  REQUIRE(journal);
  CHECK(journal->steps.size() == 1);
  CHECK(journal->steps.contains(1));
  CHECK(journal->unreadable == std::vector<std::int64_t>{0});
}

TEST_CASE("step journal: digests of a step go with the step's next record", "[checkpoint][index]") {
  const test::TempDirectory directory;
  test::MemoryStore store;
  {
    auto index = CheckpointIndex::open(store, directory.path());
    REQUIRE(index);
    REQUIRE(index->log_steps(std::vector{record_of(5)}));
  }
  auto index = CheckpointIndex::open(store, directory.path());  // another start digests less
  REQUIRE(index);
  StepRecord again = record_of(5);
  again.tensor_digests.clear();
  REQUIRE(index->log_steps(std::vector{again}));
  const auto journal = read_step_journal(store);
  REQUIRE(journal);
  REQUIRE(journal->steps.size() == 1);
  CHECK(journal->steps.at(5).tensor_digests.empty());
}

TEST_CASE("step journal: steps that are taken back leave neither record nor digests",
          "[checkpoint][index]") {
  const test::TempDirectory directory;
  test::MemoryStore store;
  const auto records = [](std::int64_t first, std::int64_t last) {
    std::vector<StepRecord> made;
    for (std::int64_t step = first; step <= last; ++step) {
      made.push_back(record_of(step));
    }
    return made;
  };
  const auto steps = [&] {
    const auto journal = read_step_journal(store);
    REQUIRE(journal);
    CHECK(journal->unreadable.empty());
    std::vector<std::int64_t> found;
    for (const auto& [step, record] : journal->steps) {
      CHECK_FALSE(record.tensor_digests.empty());
      found.push_back(step);
    }
    return found;
  };
  const auto digests = [&store] {
    std::int64_t count = 0;
    REQUIRE(store.scan(index_keys::kDigest, [&count](auto, auto) { return ++count > 0; }));
    return count;
  };
  std::optional<CheckpointIndex> index;
  const auto open = [&] {
    auto opened = CheckpointIndex::open(store, directory.path());
    REQUIRE(opened);
    index.emplace(std::move(opened).value());
  };
  open();
  REQUIRE(index->log_steps(records(3, 9)));
  REQUIRE(index->take_back(9));
  REQUIRE(index->take_back(200));
  CHECK(steps() == std::vector<std::int64_t>{3, 4, 5, 6, 7, 8, 9});
  if (GENERATE(false, true)) {
    open();
  }
  REQUIRE(index->take_back(5));
  CHECK(steps() == std::vector<std::int64_t>{3, 4, 5});
  CHECK(digests() == 3);
  REQUIRE(index->log_steps(records(6, 7)));
  CHECK(steps() == std::vector<std::int64_t>{3, 4, 5, 6, 7});
  REQUIRE(index->take_back(0));
  CHECK(steps().empty());
  CHECK(digests() == 0);
}

TEST_CASE("step journal: the newest 10,000 digests stay", "[checkpoint][index]") {
  const test::TempDirectory directory;
  test::MemoryStore store;
  constexpr std::int64_t all = 12'000;
  for (std::int64_t first = 1; first <= all; first += 3'000) {
    auto index = CheckpointIndex::open(store, directory.path());  // now and then anew
    REQUIRE(index);
    for (std::int64_t step = first; step < first + 3'000; step += 20) {
      std::vector<StepRecord> records;
      for (std::int64_t each = step; each < step + 20; ++each) {
        records.push_back({.step = each, .tensor_digests = {1}});
      }
      REQUIRE(index->log_steps(records));
    }
  }
  const auto journal = read_step_journal(store);
  REQUIRE(journal);
  REQUIRE(std::ssize(journal->steps) == all);
  std::int64_t digested = 0;
  for (const auto& [number, step] : journal->steps) {
    digested += step.tensor_digests.empty() ? 0 : 1;
    CHECK((!step.tensor_digests.empty() || step.step <= all - 10'000));
  }
  CHECK(digested >= 10'000);
  CHECK(digested <= 10'520);
}

}  // namespace
}  // namespace train::checkpoint
