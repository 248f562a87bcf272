// A node that is lost with its launcher, its ranks and its memory, and is started again: its buddy
// has what its ranks need. Real processes, real signals.

#include <random>

#include "tests/integration/two_nodes.hpp"

using namespace train::test;

namespace {

constexpr std::size_t kInterval = 20;

}  // namespace

TEST_CASE("nodes: a job outlives kill -9 of a whole node that is started again, from memory",
          "[integration][.full][nodes][buddy][recovery][P1][P4]") {
  const char* const strategy = GENERATE("full", "none", "hybrid", "optimizer", "gradient");
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  TwoNodes run({kEndless, "recovery.max_respawns=1000",
                fmt::format("recovery.snapshot_interval_steps={}", kInterval),
                "checkpoint.interval_steps=100000"},
               strategy);
  const auto wanted = static_cast<std::size_t>(3 * soak());
  for (std::size_t kills = 1; kills <= wanted; ++kills) {
    REQUIRE(run.makes_progress(2 * kInterval + 5));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 50));
    if (kills == 1) {
      REQUIRE(run.lose_other_kept());
    } else {
      run.lose_other();  // at any time: its buddy may be behind
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
    run.start_other_again(strategy);
    REQUIRE(run.loses_rank(kills));
  }
  run.check_good_end();
  const std::string log = run.head().err();
  const std::size_t from_memory = count_of(log, " from memory");
  fmt::print("nodes: seed {}, {}, {} of {} losses of a node made good from memory\n", seed,
             strategy, from_memory, wanted);
  CHECK(from_memory > 0);
}
