// What a smaller group keeps between the passes (reshard = N), and when it may be gathered.

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <set>
#include <string>

#include "engine/sharding/buffer_reservations.hpp"
#include "tests/engine/sharding/shard_options.hpp"

namespace train::engine::reshard_reservations_test {
namespace {

using testing::index_of;
using testing::plan_with;
using testing::shard_options;

TEST_CASE(
    "reservation book: with reshard = N each reservation that keeps rows ends before it is "
    "gathered anew",
    "[engine][lease_book]") {
  ShardPlan::Options options = shard_options(4, "full", 0, 4);
  options.parallel.reshard = std::string("2");
  const ShardPlan plan = plan_with(options);
  const BufferSchedule schedule(plan, kTrainStep);
  const auto& gathers = schedule.gathers();
  REQUIRE(std::any_of(gathers.begin(), gathers.end(),
                      [](const Reservation& reservation) { return reservation.keeps_rows; }));
  BufferReservations book(plan, schedule, kTrainStep, 3);
  book.finalize();
  std::set<std::size_t> kept;  // groups
  const auto pump = [&] {
    for (const std::int32_t gather : book.start_gathers()) {
      const Reservation& reservation = gathers[index_of(gather)];
      CHECK((!reservation.from_smaller_group || kept.contains(reservation.group)));
      book.gathered(gather);
    }
    for (const std::int32_t gather : book.take_ended()) {
      if (gathers[index_of(gather)].keeps_rows) {
        kept.insert(gathers[index_of(gather)].group);
      }
    }
  };
  for (std::size_t visit = 0; visit < schedule.visits().size(); ++visit) {
    book.want(schedule.gather_of(visit));
    pump();
    REQUIRE(book.ready(schedule.gather_of(visit)));
    book.visited(visit);
    pump();
  }
  CHECK(kept.size() > 1);
}

TEST_CASE("reservation book: what a smaller group sends is copied before anybody gathers it",
          "[engine][lease_book]") {
  // A buffer for nearly every group: without a lane nothing else holds a gather up.
  ShardPlan::Options options = shard_options(4, "full", 0, 5);
  options.parallel.reshard = std::string("2");
  options.parallel.gather_credits = 4;
  options.parallel.prefetch_backward = 0;
  const ShardPlan plan = plan_with(options);
  const BufferSchedule schedule(plan, kTrainStep);
  const auto& gathers = schedule.gathers();
  REQUIRE(std::any_of(gathers.begin(), gathers.end(),
                      [](const Reservation& reservation) { return reservation.keeper >= 0; }));
  BufferReservations book(plan, schedule, kTrainStep, 3);
  book.finalize();
  std::deque<std::int32_t> under_way;
  std::set<std::int32_t> ended;
  std::size_t visit = 0;
  const auto& lanes = plan.train_lanes();
  while (ended.size() < gathers.size()) {
    for (const std::int32_t gather : book.start_gathers()) {
      const std::int32_t keeper = gathers[index_of(gather)].keeper;
      CHECK((keeper < 0 || ended.contains(keeper)));
      under_way.push_back(gather);
    }
    for (; visit < schedule.visits().size(); ++visit) {
      if (!lanes.lane(3, schedule.visits()[visit].round)) {
        continue;
      }
      book.want(schedule.gather_of(visit));
      if (!book.ready(schedule.gather_of(visit))) {
        break;
      }
      book.visited(visit);
    }
    if (!under_way.empty()) {  // late
      book.gathered(under_way.front());
      under_way.pop_front();
    }
    for (const std::int32_t gather : book.take_ended()) {
      ended.insert(gather);
    }
  }
}

}  // namespace
}  // namespace train::engine::reshard_reservations_test
