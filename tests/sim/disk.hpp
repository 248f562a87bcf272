#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "storage/files/file_calls.hpp"
#include "storage/kv_store.hpp"
#include "tests/sim/seed_plan.hpp"
#include "tests/support/disks/crashing_disk.hpp"
#include "tests/support/disks/memory_store.hpp"
#include "tests/support/disks/recording_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::sim {

/// A process of the run: the launcher, or a rank from 0.
inline constexpr int kLauncher = -1;
inline constexpr int kEverybody = -2;

/// The disk of one run: a directory in memory, and a model of what of it would survive a power cut.
/// Processes end in the middle of a call; for a while the disk may be full.
///
/// Threading: one thread. One object at a time: it is the hook of all file calls.
class SimDisk final : public storage::FileCallHook {
 public:
  /// `late_sync`: shards are synced only when the next save begins (Bug::commit_before_fsync).
  explicit SimDisk(bool late_sync);
  ~SimDisk() override;

  [[nodiscard]] const std::filesystem::path& root() const { return directory_.path(); }

  /// Whose calls follow.
  void act_as(int process) { process_ = process; }
  /// That process, or any, ends in its `calls`-th call from here on.
  void end_in_call(int process, std::uint64_t calls) { end_ = {process, calls}; }
  /// Nothing changes the disk any more on behalf of that process. Of the launcher: of any.
  void end(int process);
  [[nodiscard]] bool ended(int process) const;
  /// Who ended in a call since this was asked last.
  [[nodiscard]] std::optional<int> take_ended_in_call();
  /// A new start: every process may make calls again, there is space, no end is due.
  void start();
  /// Ranks that start anew.
  void revive_ranks();

  /// The next `calls` that take space fail.
  void fill(std::uint64_t calls) { full_for_ = calls; }
  /// Some call has failed for want of space since start().
  [[nodiscard]] bool was_full() const { return was_full_; }

  /// What was not synced is lost, or half of it, as `random` picks. REQUIRES: no file is open.
  void power_cut(Random& random);

  int before(storage::FileCall& call) override;
  void after(const storage::FileCall& call, int error_number) override;

 private:
  struct End {
    int process = kLauncher;
    std::uint64_t calls = 0;
  };

  void install();
  void end_now();
  [[nodiscard]] int refuse_for_space(storage::FileCall& call);
  void sync_shards_late();

  bool late_sync_;
  test::TempDirectory directory_;
  std::optional<test::CrashingDisk> durable_;    // before `recorder_` began
  std::optional<test::RecordingDisk> recorder_;  // what was done since
  int process_ = kLauncher;
  std::set<int> ended_;
  std::optional<End> end_;
  std::optional<int> ended_in_call_;
  bool ends_after_write_ = false;
  std::uint64_t full_for_ = 0;
  bool short_write_ = false;
  bool was_full_ = false;
};

/// In the place of rsync: a hidden file, written, renamed, not synced.
[[nodiscard]] Status copy_on_disk(const std::filesystem::path& from,
                                  const std::filesystem::path& to);

/// The bytes behind the run's index: a log of writes, as RocksDB's.
class IndexLog {
 public:
  /// Opens what is there. The store borrows this and the disk.
  [[nodiscard]] std::unique_ptr<storage::KvStore> open(SimDisk& disk);
  /// Keeps what was synced, and of the rest as many of the first writes as `random` picks.
  void power_cut(Random& random);

  void append(const storage::WriteBatch& batch, storage::Durability durability);
  [[nodiscard]] const std::vector<storage::WriteBatch>& writes() const { return writes_; }

 private:
  std::vector<storage::WriteBatch> writes_;
  std::size_t synced_ = 0;
};

}  // namespace train::sim
