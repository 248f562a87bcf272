// A node that is lost with its launcher, its ranks and its memory, and is started again: its buddy
// has what its ranks need. Real processes, real signals.

#include <random>

#include "tests/integration/two_nodes.hpp"

using namespace train::test;

namespace {

constexpr std::size_t kInterval = 20;
constexpr int kLastLoss = 150;  // of 300 steps

}  // namespace

TEST_CASE("nodes: a job outlives kill -9 of a whole node that is started again, from memory",
          "[integration][nodes][buddy][recovery][P1][P4]") {
  const char* const strategy = GENERATE("full", "none", "hybrid", "optimizer", "gradient");
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  TwoNodes run(
      {"recovery.max_respawns=1000", fmt::format("recovery.snapshot_interval_steps={}", kInterval),
       "checkpoint.interval_steps=1000"},
      strategy);
  const auto wanted = static_cast<std::size_t>(3 * soak());
  std::size_t kills = 0;
  while (kills < wanted && !run.has_shown(kLastLoss) && run.makes_progress(2 * kInterval + 5)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 50));
    run.lose_other();
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
    run.start_other_again(strategy);
    if (!run.loses_rank(++kills)) {
      run.lose_other();  // the run was over before its node was: who comes now finds nobody
      break;
    }
  }
  run.check_good_end();
  const std::string log = run.head().err();
  const std::size_t from_memory = count_of(log, " from memory");
  fmt::print("nodes: seed {}, {}, {} of {} losses of a node made good from memory\n", seed,
             strategy, from_memory, kills);
  CHECK(kills > 0);
  CHECK(from_memory > 0);
}
