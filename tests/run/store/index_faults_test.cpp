// The index of a run on a disk that refuses what RocksDB writes, and takes it again later.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index/index_content.hpp"
#include "checkpoint/index/index_view.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "run/store/checkpoint_store.hpp"
#include "storage/rocks_store.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/harness/log_lines.hpp"
#include "tests/support/harness/sanitized.hpp"

namespace train::run::index_faults_test {
namespace {

namespace fs = std::filesystem;
using test::DiskFault;
using test::FailingDisk;
using test::SmallState;
using Steps = std::vector<std::int64_t>;
namespace index_keys = checkpoint::index_keys;

/// 1 to `last`.
Steps steps_to(std::int64_t last) {
  Steps steps(static_cast<std::size_t>(last));
  std::iota(steps.begin(), steps.end(), 1);
  return steps;
}

/// The checkpoints of a run, with a real index, of which two are kept.
class Site {
 public:
  Site() { open(); }

  void open() {
    store_.reset();  // one process has the index at a time
    auto opened = CheckpointStore::open({.locations = {.project = directory_ / "checkpoints"},
                                         .index = directory_ / "index",
                                         .keep = {.keep_last = 2},
                                         .tokens_per_step = 1,
                                         .fields = test::fields_at(0)});
    REQUIRE(opened);
    store_ = std::move(opened).value();
    REQUIRE(store_->find_start());
  }

  /// Trains ten steps and saves the last, as the index actor has it done; whether that went well.
  bool ten_steps() {
    std::vector<checkpoint::StepRecord> steps;
    for (int i = 0; i < 10; ++i) {
      steps.push_back({.step = ++step_, .loss = 1.0, .grad_norm = 2.0, .lr = 0.5});
    }
    const Status begun = store_->set_state(step_, checkpoint::CheckpointState::writing);
    const Status evaluated = store_->evaluated(step_, 1.5);
    const Status noted = store_->event("tested", fmt::format("step={}", step_));
    const Status journalled = store_->journal(steps);
    SmallState state(static_cast<float>(step_));
    const fs::path incoming =
        checkpoint::incoming_path(directory_ / "checkpoints", store_->tag(), step_);
    const auto record = checkpoint::write_shard(incoming, state.views(), {});
    REQUIRE(record);
    if (!journalled ||
        !store_->publish(step_,
                         {{.step = step_, .rank = 0, .record = checkpoint::shard_text(*record)}})) {
      (void)store_->discard(step_, false);
      return false;
    }
    published_.push_back(step_);
    check_journal(step_);
    return store_->record(step_).ok() && begun && evaluated && noted;
  }

  /// As an evaluation is noted, which is no reason to wait for a disk.
  void remark(std::int64_t steps_ahead = 0) {
    (void)store_->event("tested", "");
    (void)store_->evaluated(step_ + steps_ahead, 1.5);
  }

  /// The next steps follow `step`.
  [[nodiscard]] Status take_back(std::int64_t step) {
    step_ = std::min(step_, step);
    return store_->take_back(step);
  }
  [[nodiscard]] Status write_queue() { return store_->journal({}); }
  [[nodiscard]] Steps journaled() const {
    const auto index = storage::RocksStore::open_read_only(directory_ / "index");
    REQUIRE(index);
    const auto journal = checkpoint::read_step_journal(**index);
    REQUIRE(journal);
    CHECK(journal->unreadable.empty());
    Steps steps;
    for (const auto& [step, record] : journal->steps) {
      steps.push_back(step);
    }
    return steps;
  }

  /// Steps with a loss that no checkpoint has.
  [[nodiscard]] Steps evaluated() const {
    const auto index = storage::RocksStore::open_read_only(directory_ / "index");
    REQUIRE(index);
    Steps steps;
    REQUIRE((*index)->scan(index_keys::kLoss, [&steps](std::string_view key, auto) {
      steps.push_back(index_keys::number_of(index_keys::kLoss, key).value());
      return true;
    }));
    return steps;
  }

  /// CK-7: whoever sees the checkpoint sees the steps that lead to it.
  void check_journal(std::int64_t newest) const {
    const Steps steps = journaled();
    for (std::int64_t step = 1; step <= newest; ++step) {
      INFO("step " << step);
      REQUIRE(std::binary_search(steps.begin(), steps.end(), step));
    }
  }

  /// What is in place and what the index knows to be there.
  void check_settled() {
    Steps placed;
    const auto listed = checkpoint::list_checkpoints(directory_ / "checkpoints");
    REQUIRE(listed);
    for (const auto& one : *listed) {
      placed.insert(placed.begin(), one.step);
    }
    CHECK(placed == Steps(published_.end() - 2, published_.end()));
    open();
    const auto view = checkpoint::view_index(directory_ / "index", directory_ / "checkpoints");
    REQUIRE(view);
    CHECK(view->without_index.empty());
    Steps recorded;
    for (const checkpoint::IndexEntry& entry : view->entries) {
      if (entry.state == checkpoint::CheckpointState::committed) {
        recorded.push_back(entry.step);
        CHECK(entry.validation_loss == 1.5);
      }
    }
    CHECK(recorded == placed);
    check_journal(step_);
  }

 private:
  test::TempDirectory directory_{test::quick_directory()};
  std::unique_ptr<CheckpointStore> store_;
  std::int64_t step_ = 0;
  Steps published_;
};

/// A run whose index meets `fault` after its first save, and a good disk at its end.
std::int64_t run_with(const DiskFault& fault) {
  std::optional<FailingDisk> disk;
  DiskFault none = fault;
  none.at = -1;
  disk.emplace(none);  // RocksDB is to be opened under it
  Site site;
  REQUIRE(site.ten_steps());
  disk.emplace(fault);
  for (int save = 0; save < 3; ++save) {
    site.ten_steps();
  }
  const std::int64_t calls = disk->seen();
  disk.emplace(none);
  CHECK(site.ten_steps());
  CHECK(site.ten_steps());
  site.check_settled();
  return calls;
}

}  // namespace

TEST_CASE("checkpoint_store: whichever call of RocksDB fails, no step and no checkpoint is lost",
          "[run][checkpoint_store][CK-7]") {
  const int error_number = GENERATE(ENOSPC, EIO);
  const std::int64_t calls = run_with({.at = -1, .part = "/index/"});
  REQUIRE(calls > 20);
  // RocksDB itself is not instrumented: sanitizers need not see each of its calls fail.
  const std::int64_t stride = test::sanitized() ? 5 : 1;
  for (const std::int64_t failing : {1, 3, 0}) {
    for (std::int64_t at = failing % stride; at < calls; at += stride) {
      INFO("from call " << at << " of " << calls << " on " << failing
                        << " calls fail (0: all), error " << error_number);
      run_with({.error_number = error_number,
                .at = at,
                .persistent = failing == 0,
                .calls = failing,
                .part = "/index/"});
    }
  }
}

TEST_CASE("checkpoint_store: remarks to an index that was refused wait for the next steps",
          "[run][checkpoint_store]") {
  std::optional<FailingDisk> disk;
  const DiskFault full = {.error_number = ENOSPC, .at = 0, .persistent = true, .part = "/index/"};
  disk.emplace(DiskFault{.at = -1, .part = "/index/"});
  Site site;
  REQUIRE(site.ten_steps());
  disk.emplace(full);
  site.remark();
  const std::int64_t refused = disk->seen();
  CHECK(refused > 0);
  for (int i = 0; i < 100; ++i) {
    site.remark();
  }
  CHECK(disk->seen() == refused);
  disk.reset();
  CHECK(site.ten_steps());
  CHECK(site.ten_steps());
  site.check_settled();
}

TEST_CASE("checkpoint_store: steps that are taken back do not come out of the queue",
          "[run][checkpoint_store]") {
  std::optional<FailingDisk> disk;
  const DiskFault none = {.at = -1, .part = "/index/"};
  disk.emplace(none);
  Site site;
  REQUIRE(site.ten_steps());
  disk.emplace(DiskFault{.error_number = ENOSPC, .at = 0, .persistent = true, .part = "/index/"});
  CHECK_FALSE(site.ten_steps());
  CHECK_FALSE(site.take_back(13));
  disk.emplace(none);
  REQUIRE(site.write_queue());
  CHECK(site.journaled() == steps_to(13));
  REQUIRE(site.take_back(8));
  REQUIRE(site.write_queue());
  CHECK(site.journaled() == steps_to(8));
}

TEST_CASE("checkpoint_store: steps that a full disk keeps from being taken back go later",
          "[run][checkpoint_store]") {
  const bool trained_on = GENERATE(false, true);
  CAPTURE(trained_on);
  std::optional<FailingDisk> disk;
  const DiskFault none = {.at = -1, .part = "/index/"};
  disk.emplace(none);
  Site site;
  REQUIRE(site.ten_steps());
  REQUIRE(site.ten_steps());
  disk.emplace(DiskFault{.error_number = ENOSPC, .at = 0, .persistent = true, .part = "/index/"});
  site.remark(/*steps_ahead=*/5);
  CHECK_FALSE(site.take_back(13));
  CHECK_FALSE(site.take_back(17));  // Steps 14 to 17 are still to go.
  if (trained_on) {
    CHECK_FALSE(site.ten_steps());
  }
  CHECK(site.journaled() == steps_to(20));
  disk.emplace(none);
  REQUIRE(site.write_queue());
  CHECK(site.journaled() == steps_to(trained_on ? 23 : 13));
  CHECK(site.evaluated() == (trained_on ? Steps{23} : Steps{}));
}

TEST_CASE("checkpoint_store: an index that cannot be written is one warning, and room is one line",
          "[run][checkpoint_store]") {
  const test::LogLines log;
  run_with({.error_number = ENOSPC, .at = 0, .persistent = true, .part = "/index/"});
  CHECK(log.count("index_behind") == 1);
  CHECK(log.count("index_caught_up") == 1);
}

}  // namespace train::run::index_faults_test
