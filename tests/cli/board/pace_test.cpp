// How fast the board lets others in, whatever they do.
#include "cli/board/pace.hpp"

#include <catch2/catch.hpp>

namespace train::cli::pace_test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("pace: a burst after a rest goes through, then so many a second", "[cli][board][pace]") {
  Pace pace(10, 3);
  const Pace::Time start = Pace::Time() + 1h;
  for (int each = 0; each < 3; ++each) {
    CHECK(pace.take(start) == 0ms);
  }
  CHECK(pace.take(start) == 100ms);
  CHECK(pace.take(start) == 200ms);  // behind the one before it
  CHECK(pace.take(start + 250ms) == 50ms);
  CHECK(pace.take(start + 10s) == 0ms);  // rested
}

TEST_CASE("pace: a flood gets no more than its share, and who comes slowly never waits",
          "[cli][board][pace]") {
  Pace flooded(50, 150);
  const Pace::Time start = Pace::Time() + 1h;
  Pace::Time now = start;
  for (int each = 0; each < 1150; ++each) {
    now += flooded.take(now) + 1us;  // one after the other, as fast as they are let in
  }
  CHECK(now - start >= 19s);
  CHECK(now - start <= 21s);
  Pace calm(50, 1);
  for (int each = 0; each < 1000; ++each) {
    CHECK(calm.take(now += 20ms) == 0ms);
  }
}

}  // namespace
}  // namespace train::cli::pace_test
