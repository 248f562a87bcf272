// A node that is lost with its launcher, its ranks and its memory, and is started again: its buddy
// has what its ranks need. Real processes, real signals.

#include <random>

#include "tests/integration/sites/two_nodes.hpp"
#include "tests/support/harness/drawn.hpp"

using namespace train::test;

namespace {

constexpr std::int64_t kInterval = 20;

}  // namespace

TEST_CASE("nodes: a job outlives kill -9 of a whole node that is started again, from memory",
          "[integration][.full][soak][nodes][buddy][recovery][P1][P4]") {
  const std::string strategy =
      GENERATE(from_range(drawn(Words{"full", "none", "hybrid", "optimizer", "gradient"}, 2)));
  CAPTURE(strategy);
  std::mt19937 random(Catch::rngSeed());
  TwoNodes run({kEndless, "recovery.max_respawns=1000",
                fmt::format("recovery.snapshot_interval_steps={}", kInterval),
                "checkpoint.interval_steps=100000"},
               strategy);
  const auto wanted = static_cast<std::size_t>(2 * soak());
  for (std::size_t kills = 1; kills <= wanted; ++kills) {
    REQUIRE(run.makes_progress(2 * kInterval + static_cast<std::int64_t>(random() % kInterval)));
    if (kills == 1) {
      REQUIRE(run.lose_other_kept());
    } else {
      run.lose_other();  // at any step: its buddy may be behind
    }
    if (random() % 2 == 0) {  // it is missed before it is started again, or comes as if nothing was
      REQUIRE(run.loses_rank(kills));
    }
    run.start_other_again(strategy);
    REQUIRE(run.loses_rank(kills));
  }
  run.check_good_end();
  const std::string log = run.head().err();
  const std::size_t from_memory = count_of(log, " from memory");
  fmt::print("nodes: {}, {} of {} losses of a node made good from memory\n", strategy, from_memory,
             wanted);
  CHECK(from_memory > 0);
}
