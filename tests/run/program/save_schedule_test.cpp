#include "run/program/run_program.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <random>
#include <set>

namespace train::run {
namespace {

using Steps = std::vector<std::int64_t>;

TEST_CASE("save schedule: one save under way, one waits, the newest takes its place",
          "[run][save_schedule][CK-8]") {
  SaveSchedule saves;
  SaveSchedule::Take take = saves.take(1);
  CHECK(take.write_now);
  CHECK(take.replaces == -1);
  take = saves.take(2);
  CHECK_FALSE(take.write_now);
  CHECK(take.replaces == -1);
  take = saves.take(3);
  CHECK_FALSE(take.write_now);
  CHECK(take.replaces == 2);
  CHECK(saves.skipped().empty());  // as long as 3 may turn out not finite
  saves.good_through(3);
  CHECK(saves.skipped() == Steps{2});
  CHECK(saves.over(1) == 3);
  CHECK(saves.under_way() == 3);
  CHECK(saves.over(3) == std::nullopt);
  CHECK(saves.idle());
  CHECK(saves.take(9).write_now);
}

TEST_CASE("save schedule: a state that is not finite gives its place back",
          "[run][save_schedule]") {
  SaveSchedule saves;
  REQUIRE(saves.take(1).write_now);
  REQUIRE(saves.take(2).replaces == -1);
  REQUIRE(saves.take(3).replaces == 2);
  SECTION("while it waits") {
    CHECK(saves.nonfinite_from(3) == std::nullopt);
    CHECK(saves.over(1) == 2);
  }
  SECTION("when it has been granted") {
    CHECK(saves.over(1) == 3);
    CHECK(saves.waiting() == std::nullopt);
    CHECK(saves.nonfinite_from(3) == 2);
  }
  SECTION("with others after it") {
    CHECK(saves.take(4).replaces == 3);
    CHECK(saves.nonfinite_from(3) == std::nullopt);
    CHECK(saves.over(1) == 2);
  }
  CHECK(saves.over(2) == std::nullopt);
  CHECK(saves.idle());
  CHECK(saves.skipped().empty());
}

TEST_CASE("save schedule: the only snapshot is not finite", "[run][save_schedule]") {
  SaveSchedule saves;
  REQUIRE(saves.take(4).write_now);
  CHECK(saves.nonfinite_from(3) == std::nullopt);
  CHECK(saves.idle());
}

/// What ranks keep in memory, told nothing but what the schedule says.
struct Memory {
  std::set<std::int64_t> held;

  void take(std::int64_t step, const SaveSchedule::Take& take, std::int64_t nonfinite_from) {
    if (step < nonfinite_from) {
      held.erase(take.replaces);
      held.insert(step);
    }
  }
};

TEST_CASE("save schedule: any order of news: what is granted is in memory, nothing is lost",
          "[run][save_schedule][EX-4][CK-8]") {
  std::mt19937_64 random(Catch::rngSeed());
  std::size_t skipped_in_all = 0;
  for (int round = 0; round < 3000; ++round) {
    SaveSchedule saves;
    Memory memory;
    Steps taken, saved, skipped;
    const std::int64_t nonfinite = 1 + static_cast<std::int64_t>(random() % 30);
    std::int64_t step = 0, heard = 0;  // steps done; steps whose loss is known
    const auto granted = [&](std::optional<std::int64_t> next) {
      REQUIRE((!next || *next >= nonfinite || memory.held.contains(*next)));
    };
    const auto hear = [&] {
      ++heard;
      if (heard < nonfinite) {
        saves.good_through(heard);
      } else if (heard == nonfinite) {
        granted(saves.nonfinite_from(heard));
      }
    };
    while (step < 20 || heard < step || !saves.idle()) {
      const auto choice = random() % 3;
      const bool going_on = step < 20 && heard < nonfinite;
      if (choice == 0 && going_on && heard + 2 > step) {  // a window of two commands
        const SaveSchedule::Take take = saves.take(++step);
        memory.take(step, take, nonfinite);
        REQUIRE(memory.held.size() <= 2);
        taken.push_back(step);
      } else if (choice == 1 && heard < step) {
        hear();
      } else if (choice == 2 && saves.under_way() && *saves.under_way() < nonfinite) {
        const std::int64_t done = *saves.under_way();
        memory.held.erase(done);
        saved.push_back(done);
        granted(saves.over(done));
      }
      const Steps more = saves.skipped();
      skipped.insert(skipped.end(), more.begin(), more.end());
      if (!going_on && heard == step && saves.idle()) {
        break;
      }
    }
    // Every snapshot that was good is saved, or a newer one is that took its place.
    Steps all = saved;
    all.insert(all.end(), skipped.begin(), skipped.end());
    std::sort(all.begin(), all.end());
    std::erase_if(taken, [&](std::int64_t one) { return one >= nonfinite; });
    REQUIRE(all == taken);
    REQUIRE((taken.empty() || saved.back() == taken.back()));
    REQUIRE(std::is_sorted(saved.begin(), saved.end()));
    skipped_in_all += skipped.size();
  }
  CHECK(skipped_in_all > 3000);
}

}  // namespace
}  // namespace train::run
