// Whatever happens to the files of the index, the newest checkpoint is the same afterwards: the
// damage is noticed and mended, or it was none.

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <random>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/index/index.hpp"
#include "checkpoint/index/index_view.hpp"
#include "checkpoint/save/retention.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::SmallState;
using train::test::TempDirectory;

namespace {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

Steps committed_steps(const std::vector<IndexEntry>& entries) {
  Steps steps;
  for (const IndexEntry& entry : entries) {
    if (entry.state == CheckpointState::committed) {
      steps.push_back(entry.step);
    }
  }
  return steps;
}

/// A run that saved, evaluated, retired and was restarted now and then.
void live(const fs::path& home, std::int64_t first, std::int64_t last) {
  const fs::path checkpoints = home / "checkpoints";
  for (std::int64_t step = first; step <= last; step += 5) {
    auto opened = open_index(home / "index", checkpoints);
    REQUIRE(opened);
    CheckpointIndex& index = opened->index;
    for (std::int64_t save = step; save < step + 5; ++save) {
      SmallState state(static_cast<float>(save));
      auto views = state.views();
      auto fields = test::fields_at(save);
      fields.index_head = index.head();
      REQUIRE(index.note(save, CheckpointState::writing));
      const auto outcome = test::write_checkpoint(checkpoints, fields, views);
      REQUIRE(outcome);
      REQUIRE(index.commit(entry_of(outcome->manifest, outcome->manifest_digest)));
      REQUIRE(index.evaluated(save, 1.0 / static_cast<double>(save)));
      REQUIRE(index.log_steps(std::vector<StepRecord>{{.step = save}}));
      for (const std::int64_t old : to_retire(index.committed(), {.keep_last = 4})) {
        REQUIRE(retire(checkpoints, old));
        REQUIRE(index.retire(old));
      }
    }
  }
}

enum class IndexDamage { flip, cut, empty, remove, yesterday };
constexpr IndexDamage all_damages[] = {IndexDamage::flip, IndexDamage::cut, IndexDamage::empty,
                                       IndexDamage::remove, IndexDamage::yesterday};

/// Does it to `file`; false: it would change nothing.
bool inflict(IndexDamage damage, const fs::path& file, const fs::path& old_one,
             std::mt19937& random) {
  std::string bytes = test::read_bytes(file);
  const std::string before = bytes;
  switch (damage) {
    case IndexDamage::flip:
      for (int i = 0; i < 3 && !bytes.empty(); ++i) {
        bytes[random() % bytes.size()] ^= static_cast<char>(1U << (random() % 8));
      }
      break;
    case IndexDamage::cut:
      bytes.resize(bytes.empty() ? 0 : random() % bytes.size());
      break;
    case IndexDamage::empty:
      bytes.clear();
      break;
    case IndexDamage::remove:
      fs::remove(file);
      return true;
    case IndexDamage::yesterday:
      bytes = fs::exists(old_one) ? test::read_bytes(old_one) : bytes;
      break;
  }
  test::write_bytes(file, bytes);
  return bytes != before;
}

struct Tally {
  int cases = 0;
  int untouched = 0;
  int adopted = 0;
  int rebuilt = 0;
};

/// The damaged index of `home`: seen from outside, then opened, then opened again.
void check(const fs::path& home, const Steps& wanted, Tally& tally) {
  const auto view = view_index(home / "index", home / "checkpoints");
  REQUIRE(view);
  REQUIRE(committed_steps(view->entries) == wanted);
  {
    const auto opened = open_index(home / "index", home / "checkpoints");
    INFO((opened ? std::string() : opened.error().message));
    REQUIRE(opened);
    REQUIRE(committed_steps(opened->index.entries()) == wanted);
    const ReconcileReport& report = opened->index.report();
    ++tally.cases;
    ++(report.rebuilt ? tally.rebuilt : report.adopted.empty() ? tally.untouched : tally.adopted);
  }
  const auto again = open_index(home / "index", home / "checkpoints");
  REQUIRE(again);
  REQUIRE(committed_steps(again->index.entries()) == wanted);
  REQUIRE_FALSE(again->index.report().rebuilt);
}

/// The names beside the index of those that were kept.
std::vector<std::string> kept_aside(const fs::path& home) {
  std::vector<std::string> names = test::names_in(home);
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("index."); });
  return names;
}

}  // namespace

TEST_CASE("index: damage to any of its files costs no checkpoint",
          "[checkpoint][.full][index][CK-7]") {
  const TempDirectory directory(test::quick_directory());
  live(directory / "run", 1, 20);
  fs::copy(directory / "run/index", directory / "yesterday", fs::copy_options::recursive);
  live(directory / "run", 21, 35);
  const Steps wanted = {32, 33, 34, 35};
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory / "run/index")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const auto seed = Catch::rngSeed();
  std::mt19937 random(seed);
  Tally tally;
  fs::create_directory(directory / "case");
  fs::create_directory_symlink(directory / "run/checkpoints", directory / "case/checkpoints");
  const auto restart = [&] {
    fs::remove_all(directory / "case/index");
    fs::copy(directory / "run/index", directory / "case/index", fs::copy_options::recursive);
  };
  while (tally.cases < 200) {
    for (const std::string& name : names) {
      for (const IndexDamage damage : all_damages) {
        INFO(name << " damage " << static_cast<int>(damage) << " seed " << seed);
        restart();
        if (inflict(damage, directory / "case/index" / name, directory / "yesterday" / name,
                    random)) {
          check(directory / "case", wanted, tally);
        }
      }
    }
  }
  // All of it: gone, and as it was yesterday.
  fs::remove_all(directory / "case/index");
  check(directory / "case", wanted, tally);
  fs::remove_all(directory / "case/index");
  fs::copy(directory / "yesterday", directory / "case/index", fs::copy_options::recursive);
  check(directory / "case", wanted, tally);
  std::printf("index damage: %d cases, seed %u: %d made anew, %d adopted, %d without effect\n",
              tally.cases, seed, tally.rebuilt, tally.adopted, tally.untouched);
  REQUIRE(tally.cases >= 200);
  REQUIRE(tally.rebuilt > 20);
  REQUIRE(tally.untouched > 0);
}

TEST_CASE("index: one that is damaged is kept aside, each under a name of its own",
          "[checkpoint][index][CK-7]") {
  const TempDirectory directory(test::quick_directory());
  live(directory.path(), 1, 5);
  for (int number = 1; number <= 3; ++number) {
    const std::string damage = fmt::format("damage {}\n", number);
    test::write_bytes(directory / "index/CURRENT", damage);
    const auto opened = open_index(directory / "index", directory / "checkpoints");
    REQUIRE(opened);
    REQUIRE(opened->index.report().rebuilt);
    const std::string name = fmt::format("index.aside-{}", number);
    REQUIRE_THAT(opened->index.report().reason,
                 Catch::Contains("kept as ") && Catch::Contains(name));
    REQUIRE(kept_aside(directory.path()).size() == static_cast<std::size_t>(number));
    REQUIRE(test::read_bytes(directory / name / "CURRENT") == damage);
  }
}

TEST_CASE("index: an error that is no damage costs no index", "[checkpoint][index][CK-7]") {
  const TempDirectory directory(test::quick_directory());
  live(directory.path(), 1, 5);
  // No such device or address, when it is opened.
  const fs::path current = directory / "index/CURRENT";
  fs::rename(current, directory / "CURRENT");
  REQUIRE(::mknod(current.c_str(), S_IFSOCK | 0600, 0) == 0);
  const auto names = test::names_in(directory / "index");
  const auto refused = open_index(directory / "index", directory / "checkpoints");
  REQUIRE_FALSE(refused);
  REQUIRE(refused.error().exit_code() == 1);
  REQUIRE_THAT(refused.error().message, Catch::Contains("No such device or address"));
  REQUIRE(kept_aside(directory.path()).empty());
  REQUIRE(test::names_in(directory / "index") == names);
  fs::rename(directory / "CURRENT", current);
  const auto opened = open_index(directory / "index", directory / "checkpoints");
  REQUIRE(opened);
  REQUIRE_FALSE(opened->index.report().rebuilt);
  REQUIRE(committed_steps(opened->index.entries()) == Steps{2, 3, 4, 5});
}

TEST_CASE("index_view: looks on while the run writes", "[checkpoint][index_view]") {
  const TempDirectory directory(test::quick_directory());
  const fs::path checkpoints = directory / "checkpoints";
  const auto absent = view_index(directory / "index", checkpoints);
  REQUIRE(absent);
  REQUIRE(absent->entries.empty());
  REQUIRE_THAT(absent->without_index, Catch::Contains("not there"));
  live(directory.path(), 1, 10);
  auto opened = open_index(directory / "index", checkpoints);
  REQUIRE(opened);
  REQUIRE(opened->index.note(11, CheckpointState::publishing));
  const auto view = view_index(directory / "index", checkpoints);
  REQUIRE(view);
  REQUIRE(view->without_index.empty());
  REQUIRE(committed_steps(view->entries) == Steps{7, 8, 9, 10});
  REQUIRE(view->entries.size() == 11);
  REQUIRE(view->entries.front().state == CheckpointState::retired);
  REQUIRE(view->entries.back().state == CheckpointState::publishing);
  REQUIRE(view->entries[9].validation_loss == 0.1);
  // Published, not yet recorded; and one retired that is not yet recorded as such.
  test::write_at(checkpoints, 11, SmallState());
  REQUIRE(retire(checkpoints, 7));
  const auto later = view_index(directory / "index", checkpoints);
  REQUIRE(later);
  REQUIRE(committed_steps(later->entries) == Steps{8, 9, 10, 11});
  // Nothing was changed by looking.
  REQUIRE(committed_steps(opened->index.entries()) == Steps{7, 8, 9, 10});
  REQUIRE(opened->index.log_event("still", "writable"));
}
