// Disks that are full or broken, at every call of a save: the failure is told, the checkpoints that
// were there stand, what was written of the new one goes, and the next save is as any other.

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "checkpoint/index/index.hpp"
#include "checkpoint/load/reader.hpp"
#include "storage/files/atomic_file.hpp"
#include "tests/checkpoint/save/save_fixture.hpp"
#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/full_disk.hpp"
#include "tests/support/disks/memory_store.hpp"
#include "tests/support/processes/script.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::DiskFault;
using train::test::FailingDisk;
using train::test::MemoryStore;
using train::test::SmallState;
using train::test::TempDirectory;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kRanks = 2;

// A save as the product makes it: shards, publication, record, retirement of all but one. What
// failed is given up.
Status save(const fs::path& checkpoints, CheckpointIndex& index, std::int64_t step,
            std::int64_t rows = 500) {
  const test::SaveRequest request = {.checkpoints = checkpoints,
                                     .step = step,
                                     .ranks = kRanks,
                                     .rows = rows,
                                     .index_head = index.head()};
  const bool two_locations = fs::exists(test::locations_beside(checkpoints).local);
  const auto written =
      two_locations ? test::write_in_two_locations(request) : test::write_in_place(request);
  if (!written && two_locations) {
    std::ignore = test::carriers_of(request)[0].discard(step);
    std::ignore = storage::remove_tree(incoming_path(checkpoints, "job", step));
  }
  TRAIN_RETURN_IF_ERROR(written);
  return test::record_save(request, *written, index, {.keep_last = 1});
}

// A run's directory with one checkpoint.
struct DiskSite {
  explicit DiskSite(const fs::path& home, bool two_locations = false)
      : checkpoints(home / "checkpoints"),
        index(CheckpointIndex::open(store, checkpoints).value()) {
    if (two_locations) {
      fs::create_directory(test::locations_beside(checkpoints).local);
    }
    REQUIRE(save(checkpoints, index, 20));
  }

  // The newest checkpoint, which must be whole to the last bit.
  [[nodiscard]] std::int64_t newest(std::int64_t rows = 500) const {
    return newest_in(checkpoints, rows);
  }
  [[nodiscard]] static std::int64_t newest_in(const fs::path& place, std::int64_t rows) {
    const auto found = find_newest_read_only(place);
    REQUIRE(found);
    REQUIRE(found->newest);
    REQUIRE(found->set_aside.empty());
    SmallState state = test::state_at(-1, rows);
    auto views = state.views();
    const auto& candidate = found->newest->candidate;
    REQUIRE(restore(candidate.path, found->newest->manifest, views));
    REQUIRE(state.all_values() == test::state_at(candidate.step, rows).all_values());
    return candidate.step;
  }
  [[nodiscard]] std::vector<std::string> hidden() const {
    std::vector<std::string> names;
    for (const fs::path& place : {checkpoints, test::locations_beside(checkpoints).local}) {
      for (const std::string& name :
           fs::exists(place) ? test::names_in(place) : std::vector<std::string>{}) {
        if (name.starts_with('.')) {
          names.push_back(name);
        }
      }
    }
    return names;
  }

  fs::path checkpoints;
  MemoryStore store;
  CheckpointIndex index;
};

std::int64_t calls_of_a_save(int error_number, bool two_locations) {
  const TempDirectory home(test::quick_directory());
  DiskSite site(home.path(), two_locations);
  const FailingDisk disk({.error_number = error_number, .at = -1});
  REQUIRE(save(site.checkpoints, site.index, 30));
  return disk.seen();
}

}  // namespace

TEST_CASE("failing disk: whatever call of a save fails, checkpoints stay whole and the next works",
          "[checkpoint][.full][failing_disk][CK-2][CK-6]") {
  const int error_number = GENERATE(ENOSPC, EDQUOT, EIO);
  const bool persistent = GENERATE(false, true);
  const bool two_locations = GENERATE(false, true);
  if (error_number == EDQUOT && !(persistent && two_locations)) {
    return;  // It is told from ENOSPC by its text alone: once, where most calls are.
  }
  const TempDirectory programs;
  const auto copy = test::write_script(
      programs / "copy", "while [ $# -gt 2 ]; do shift; done\nexec cp -- \"$1\" \"$2\"");
  const test::EnvironmentVariable rsync("ACTORTRAIN_RSYNC", copy.string());
  const std::int64_t calls = calls_of_a_save(error_number, two_locations);
  CHECK(calls > 20);
  std::int64_t published = 0;
  for (std::int64_t at = 0; at < calls; ++at) {
    INFO(fmt::format("call {} of {}, error {}, {}", at, calls, error_number,
                     persistent ? "and all after it" : "once"));
    const TempDirectory home(test::quick_directory());
    DiskSite site(home.path(), two_locations);
    std::optional<Status> saved;
    bool removal_fails = false;
    {
      const FailingDisk disk({.error_number = error_number, .at = at, .persistent = persistent});
      saved = save(site.checkpoints, site.index, 30);
      REQUIRE(disk.failed() > 0);
      removal_fails = disk.failed_to_remove();
    }
    REQUIRE_FALSE(*saved);
    REQUIRE_THAT(saved->error().message,
                 Catch::Contains("cannot write ") && Catch::Contains(home.path().string()));
    REQUIRE(saved->error().message.find('\n') == std::string::npos);
    const std::int64_t newest = site.newest();
    REQUIRE((newest == 20 || newest == 30));
    if (two_locations) {  // the local copy, old or new, is whole as well
      const std::int64_t local =
          DiskSite::newest_in(test::locations_beside(site.checkpoints).local, 500);
      REQUIRE((local == 20 || local == 30));
    }
    published += newest == 30 ? 1 : 0;
    // What was retired may stay for the next retirement, what was not published may not.
    for (const std::string& name : site.hidden()) {
      REQUIRE((removal_fails || name.starts_with(".retired-")));
    }
    REQUIRE(save(site.checkpoints, site.index, 40));
    REQUIRE(site.newest() == 40);
    REQUIRE((removal_fails || site.hidden().empty()));
    REQUIRE(find_newest(site.checkpoints));  // as the next start does
    if (two_locations) {
      REQUIRE(find_newest(test::locations_beside(site.checkpoints).local));
    }
    REQUIRE(site.hidden().empty());
    auto reopened = CheckpointIndex::open(site.store, site.checkpoints);
    REQUIRE(reopened);
    REQUIRE(reopened->committed().back().step == 40);
  }
  fmt::print("failing disk, {}: error {}, {}: {} calls, {} after the publication\n",
             two_locations ? "two places" : "one place", error_number,
             persistent ? "persistent" : "once", calls, published);
}

TEST_CASE("failing disk: a real disk that is full gives back what a failed save took",
          "[checkpoint][failing_disk][CK-2]") {
  const TempDirectory home;
  const test::SmallDisk disk(home / "disk", "2m");
  if (!disk.mounted()) {
    return;  // it has said why
  }
  constexpr std::int64_t rows = 20000;  // 480 KB a checkpoint
  DiskSite site(disk.path());
  REQUIRE(save(site.checkpoints, site.index, 30, rows));
  const auto free_bytes = [&disk] {
    struct statvfs facts {};
    REQUIRE(::statvfs(disk.path().c_str(), &facts) == 0);
    return static_cast<std::int64_t>(facts.f_bavail * facts.f_bsize);
  };
  const fs::path filler = disk.path() / "filler";
  int failures = 0;
  for (std::int64_t left = 0; left < 500'000; left += 20'480) {
    INFO(left << " bytes are free");
    test::write_bytes(filler, "");
    test::write_bytes(filler, std::string(static_cast<std::size_t>(free_bytes() - left), 'f'));
    const std::int64_t before = free_bytes();
    const Status saved = save(site.checkpoints, site.index, 40, rows);
    if (saved) {
      CHECK(failures > 20);
      break;
    }
    ++failures;
    REQUIRE_THAT(saved.error().message, Catch::Contains("disk full"));
    REQUIRE(site.newest(rows) == 30);
    REQUIRE(site.hidden().empty());
    REQUIRE(free_bytes() == before);
  }
  fs::remove(filler);
  REQUIRE(save(site.checkpoints, site.index, 50, rows));
  REQUIRE(site.newest(rows) == 50);
}
