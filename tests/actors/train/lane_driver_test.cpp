#include "actors/train/lane_driver.hpp"

#include <catch2/catch.hpp>

#include "base/check.hpp"

namespace train::actors {
namespace {

engine::LaneWork lane(std::int64_t index) { return {.lane = index, .round = index}; }

TEST_CASE("a lane goes down the chain when its tokens are there", "[actors]") {
  LaneDriver driver;
  CHECK(driver.all_enqueued());
  CHECK_FALSE(driver.wants_tokens());
  driver.start(2);
  CHECK(driver.wants_tokens());
  CHECK_FALSE(driver.launch().has_value());
  driver.ready(lane(0));
  CHECK_FALSE(driver.wants_tokens());
  const auto work = driver.launch();
  REQUIRE(work.has_value());
  CHECK(work->lane == 0);
}

TEST_CASE("the next lane follows only when the one before is wholly on the stream", "[actors]") {
  LaneDriver driver;
  driver.start(2);
  driver.ready(lane(0));
  driver.ready(lane(1));
  REQUIRE(driver.launch().has_value());
  CHECK_FALSE(driver.launch().has_value());
  driver.enqueued();
  REQUIRE(driver.launch()->lane == 1);
  CHECK_FALSE(driver.all_enqueued());
  driver.enqueued();
  CHECK(driver.all_enqueued());
}

TEST_CASE("lanes on the stream are bounded, across commands too", "[actors][EX-4]") {
  LaneDriver driver;
  driver.start(LaneDriver::kLanesInFlight);
  for (int i = 0; i < LaneDriver::kLanesInFlight; ++i) {
    driver.ready(lane(i));
    REQUIRE(driver.launch().has_value());
    driver.enqueued();
  }
  driver.start(1);
  driver.ready(lane(0));
  CHECK(driver.in_flight() == LaneDriver::kLanesInFlight);
  CHECK_FALSE(driver.launch().has_value());
  CHECK_FALSE(driver.wants_tokens());  // what it waits for is the stream
  driver.finished();
  CHECK(driver.launch().has_value());
}

TEST_CASE("a rank without a lane in a command has nothing to do", "[actors][EX-1]") {
  LaneDriver driver;
  driver.start(0);
  CHECK(driver.all_enqueued());
  CHECK_FALSE(driver.launch().has_value());
  CHECK_FALSE(driver.wants_tokens());
  driver.start(1);  // and its rounds may begin anywhere
  driver.ready(lane(3));
  CHECK(driver.launch()->round == 3);
}

TEST_CASE("what cannot happen is not passed over", "[actors]") {
  LaneDriver driver;
  CHECK_THROWS_AS(driver.finished(), CheckFailed);
  CHECK_THROWS_AS(driver.enqueued(), CheckFailed);
  driver.start(2);
  CHECK_THROWS_AS(driver.start(2), CheckFailed);
  driver.ready(lane(1));
  CHECK_THROWS_AS(driver.ready(lane(1)), CheckFailed);
  CHECK_THROWS_AS(driver.ready(lane(0)), CheckFailed);  // out of order
}

}  // namespace
}  // namespace train::actors
