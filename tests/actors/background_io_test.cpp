#include "actors/system/background_io.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <stdexcept>
#include <thread>

namespace train::actors {

TEST_CASE("spare time: work runs to its end on a thread that gives way, and may throw",
          "[actors][background_io][world]") {
  BackgroundIo spare;
  const auto caller = std::this_thread::get_id();
  const int own_policy = ::sched_getscheduler(0);
  for (int round = 0; round < 2; ++round) {
    bool done = false;
    spare.run([&] {
      CHECK(std::this_thread::get_id() != caller);
      CHECK(::sched_getscheduler(0) == SCHED_IDLE);
      CHECK(::getpriority(PRIO_PROCESS, 0) == 19);
      done = true;
    });
    CHECK(done);
  }
  CHECK(::sched_getscheduler(0) == own_policy);
  spare.run([own_policy] { CHECK(::sched_getscheduler(0) == own_policy); },
            BackgroundIo::Beside::nothing);
  CHECK_THROWS_WITH(spare.run([] { throw std::runtime_error("no disk"); }), "no disk");
  std::thread([] {
    take_smallest_share();
    CHECK(::sched_getscheduler(0) == SCHED_BATCH);
    CHECK(::getpriority(PRIO_PROCESS, 0) == 19);
  }).join();
}

}  // namespace train::actors
