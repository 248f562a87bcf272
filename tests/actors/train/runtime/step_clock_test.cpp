#include "actors/train/runtime/step_clock.hpp"

#include <catch2/catch.hpp>
#include <cstdint>

namespace train::actors::step_clock_test {

TEST_CASE("step clock: steps have all the time but what was set apart", "[actors][step_clock]") {
  std::int64_t now_ns = 1000;
  StepClock clock([&now_ns] { return now_ns; });
  clock.start();
  now_ns += 5;
  clock.start();  // it runs
  now_ns += 15;
  CHECK(clock.set_apart() == 20);
  now_ns += 7;
  CHECK(clock.end_step() == 7);
  now_ns += 3;
  CHECK(clock.end_step() == 10);
  now_ns += 100;
  CHECK(clock.set_apart() == 100);
  CHECK(clock.end_step() == 10);
  now_ns += 2;
  CHECK(clock.end_step() == 12);
}

}  // namespace train::actors::step_clock_test
