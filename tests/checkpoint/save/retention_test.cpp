#include "checkpoint/save/retention.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/reader.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::SmallState;
using train::test::TempDirectory;

namespace {

using Steps = std::vector<std::int64_t>;

IndexEntry entry_at(std::int64_t step, std::optional<double> loss = std::nullopt) {
  IndexEntry entry;
  entry.step = step;
  entry.directory = checkpoint_name(step);
  entry.validation_loss = loss;
  return entry;
}

/// The rule in the plainest words: is the entry at `at` wanted?
bool is_wanted(const std::vector<IndexEntry>& all, std::size_t at, const RetentionRule& rule) {
  const IndexEntry& one = all[at];
  const auto newer = static_cast<std::int64_t>(all.size() - at - 1);
  if (rule.keep_last <= 0 || newer < rule.keep_last ||
      (rule.keep_every > 0 && one.step % rule.keep_every == 0)) {
    return true;
  }
  if (rule.keep_best == 0 || !one.validation_loss || std::isnan(*one.validation_loss)) {
    return rule.keep_best > 0 && one.rebuilt && !one.validation_loss;
  }
  std::int64_t better = 0;
  for (const IndexEntry& other : all) {
    better += other.validation_loss &&
              (*other.validation_loss < *one.validation_loss ||
               (*other.validation_loss == *one.validation_loss && other.step < one.step));
  }
  return better < rule.keep_best;
}

}  // namespace

TEST_CASE("retention: the newest, every so many, and the best", "[checkpoint][retention][CK-6]") {
  const std::vector<IndexEntry> all = {entry_at(10, 3.0), entry_at(20, 1.0), entry_at(30, 2.0),
                                       entry_at(40, 1.0), entry_at(50),      entry_at(60, 4.0)};
  REQUIRE(to_retire(all, {}).empty());
  REQUIRE(to_retire(all, {.keep_last = 1}) == Steps{10, 20, 30, 40, 50});
  REQUIRE(to_retire(all, {.keep_last = 2, .keep_every = 20}) == Steps{10, 30});
  REQUIRE(to_retire(all, {.keep_last = 1, .keep_best = 1}) == Steps{10, 30, 40, 50});
  REQUIRE(to_retire(all, {.keep_last = 1, .keep_best = 3}) == Steps{10, 50});
  REQUIRE(to_retire(all, {.keep_last = 9}).empty());
  REQUIRE(to_retire({}, {.keep_last = 1}).empty());
  REQUIRE(to_retire(std::vector{entry_at(10)}, {.keep_last = 1}).empty());
}

TEST_CASE("retention: the best is in place, has a loss, and is the earliest of equals",
          "[checkpoint][retention][CK-6]") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<IndexEntry> all = {entry_at(10, 0.5), entry_at(20, 1.0), entry_at(30, nan),
                                 entry_at(40, 1.0), entry_at(50),      entry_at(60, 4.0)};
  all[0].state = CheckpointState::retired;
  CHECK(best_steps(all) == Steps{20});
  CHECK(best_steps(all, 9) == Steps{20, 40, 60});
  CHECK(best_steps(all, 0).empty());
  CHECK(best_steps(std::vector{entry_at(30, nan), entry_at(50)}).empty());
}

TEST_CASE("retention: a loss that was lost with the index may have been the best",
          "[checkpoint][retention][CK-6]") {
  std::vector<IndexEntry> all = {entry_at(10), entry_at(20, 1.0), entry_at(30)};
  all[0].rebuilt = true;
  REQUIRE(to_retire(all, {.keep_last = 1, .keep_best = 1}).empty());
  REQUIRE(to_retire(all, {.keep_last = 1}) == Steps{10, 20});
}

TEST_CASE("retention: any history and any rule", "[checkpoint][retention][CK-6]") {
  std::mt19937 random(20);
  const auto below = [&random](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  constexpr int histories = 3000;
  for (int i = 0; i < histories; ++i) {
    const RetentionRule rule{below(5), below(4) * below(10), below(4)};
    std::vector<IndexEntry> placed;
    std::int64_t step = 0;
    const std::int64_t saves = 1 + below(25);
    for (std::int64_t save = 0; save < saves; ++save) {
      step += 1 + below(7);
      IndexEntry entry = entry_at(step);
      if (below(4) != 0) {
        entry.validation_loss = below(12) == 0 ? std::numeric_limits<double>::quiet_NaN()
                                               : static_cast<double>(below(9));
      }
      entry.rebuilt = below(6) == 0;
      placed.push_back(entry);
      const Steps gone = to_retire(placed, rule);
      INFO("history " << i << " save " << save);
      REQUIRE(std::is_sorted(gone.begin(), gone.end()));
      for (std::size_t at = 0; at < placed.size(); ++at) {
        REQUIRE(is_wanted(placed, at, rule) ==
                !std::binary_search(gone.begin(), gone.end(), placed[at].step));
      }
      std::erase_if(placed, [&](const IndexEntry& one) {
        return std::binary_search(gone.begin(), gone.end(), one.step);
      });
      REQUIRE(!placed.empty());
      REQUIRE(placed.back().step == step);       // never the newest
      REQUIRE(to_retire(placed, rule).empty());  // one pass settles it
    }
  }
}

TEST_CASE("retention: what a crash leaves of a retirement goes and nothing else",
          "[checkpoint][retention][CK-6]") {
  const TempDirectory directory;
  for (const std::int64_t step : {10, 20, 30}) {
    test::write_at(directory.path(), step, SmallState());
  }
  // Killed after the rename, and another one in the middle of the deletion.
  std::filesystem::rename(directory / "step-00000010", directory / ".retired-77-step-00000010");
  std::filesystem::rename(directory / "step-00000020", directory / ".retired-77-step-00000020");
  std::filesystem::remove(directory / ".retired-77-step-00000020/manifest.json");
  const auto found = find_newest(directory.path());
  REQUIRE(found);
  REQUIRE(found->newest->candidate.step == 30);
  REQUIRE(list_checkpoints(directory.path())->size() == 1);
  REQUIRE_FALSE(std::filesystem::exists(directory / ".retired-77-step-00000010"));
  REQUIRE_FALSE(std::filesystem::exists(directory / ".retired-77-step-00000020"));
  REQUIRE(retire(directory.path(), 10));  // missing: fine
  REQUIRE(retire(directory.path(), 30));
  REQUIRE(std::filesystem::is_empty(directory.path()));
}
