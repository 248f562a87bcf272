#include "engine/sharding/lane_schedule.hpp"

#include <catch2/catch.hpp>
#include <vector>

namespace train::engine::lane_schedule_test {
namespace {

void check_schedule(const LaneSchedule& schedule, std::int64_t lanes, std::int64_t ranks) {
  std::vector<int> taken(static_cast<std::size_t>(lanes), 0);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<std::int64_t> in_order;
    for (std::int64_t round = 0; round < schedule.rounds(); ++round) {
      if (const auto lane = schedule.lane(rank, round)) {
        ++taken.at(static_cast<std::size_t>(*lane));
        in_order.push_back(*lane);
        CHECK(schedule.rank_of(*lane) == rank);
        const LaneRange of_sync = schedule.lanes_of(rank, schedule.sync_of(round));
        CHECK((of_sync.first <= *lane && *lane < of_sync.end()));
      }
    }
    CHECK(in_order == schedule.lanes_of(rank));
    CHECK(static_cast<std::int64_t>(in_order.size()) <= schedule.rounds());
  }
  CHECK(taken == std::vector<int>(static_cast<std::size_t>(lanes), 1));
  // Left to right over syncs, then ranks: what owners of rows rely on.
  std::int64_t next = 0;
  for (std::int64_t sync = 0; sync < schedule.syncs(); ++sync) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const LaneRange run = schedule.lanes_of(rank, sync);
      CHECK(run.first == next);
      next = run.end();
      const std::int64_t last = schedule.last_round_of(rank, sync);
      CHECK((last == -1) == (run.count == 0));
      if (last >= 0) {
        CHECK(schedule.sync_of(last) == sync);
        CHECK(schedule.lane(rank, last) == run.end() - 1);
      }
    }
  }
  CHECK(next == lanes);
}

}  // namespace

TEST_CASE("lane schedule: every lane has one rank and one round", "[engine][lanes][EX-1]") {
  for (std::int64_t ranks = 1; ranks <= 9; ++ranks) {
    for (std::int64_t lanes = ranks; lanes <= 20; ++lanes) {
      for (const std::int64_t rounds_per_sync : {0, 1, 2, 3, 5}) {
        INFO(lanes << " lanes, " << ranks << " ranks, " << rounds_per_sync << " a sync");
        const LaneSchedule schedule(lanes, ranks, rounds_per_sync);
        check_schedule(schedule, lanes, ranks);
        CHECK(schedule.rounds() == (lanes + ranks - 1) / ranks);
        for (std::int64_t round = 0; round + 1 < schedule.rounds(); ++round) {
          const bool ends = rounds_per_sync > 0 && (round + 1) % rounds_per_sync == 0;
          CHECK((schedule.sync_of(round) != schedule.sync_of(round + 1)) == ends);
        }
        CHECK(schedule.sync_of(schedule.rounds() - 1) == schedule.syncs() - 1);
        CHECK(schedule.lanes_of(0).size() == static_cast<std::size_t>(schedule.rounds()));
      }
    }
  }
}

TEST_CASE("lane schedule: ranks hold whole nodes where the numbers allow it",
          "[engine][lanes][P1]") {
  for (const std::int64_t ranks : {1, 2, 4, 8}) {
    for (const std::int64_t each : {1, 2, 4}) {
      const LaneSchedule schedule(2 * ranks * each, ranks, each);
      REQUIRE(schedule.syncs() == 2);
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        CHECK(RadixTree(schedule.lanes()).is_partial_sum(schedule.lanes_of(rank, 1)));
      }
    }
  }
}

TEST_CASE("lane schedule: no lanes, no rounds", "[engine][lanes]") {
  const LaneSchedule schedule(0, 3, 0);
  CHECK(schedule.rounds() == 0);
  CHECK(schedule.syncs() == 0);
  CHECK(schedule.lanes_of(2).empty());
}

TEST_CASE("lane schedule: more ranks than evaluation lanes leave ranks without one",
          "[engine][lanes][EX-1]") {
  const LaneSchedule schedule(3, 5, 0);
  CHECK(schedule.rounds() == 1);
  CHECK(schedule.lane(2, 0) == 2);
  CHECK_FALSE(schedule.lane(4, 0).has_value());
  CHECK(schedule.last_round_of(4, 0) == -1);
}

}  // namespace train::engine::lane_schedule_test
