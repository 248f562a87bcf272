// Saves that are slower than training: which of them are made is the conductor's word, so that all
// ranks save the same ones.

#include <algorithm>
#include <catch2/catch.hpp>

#include "actors/exit_codes.hpp"
#include "tests/support/actor_fixture.hpp"

namespace train::test {
namespace {

using Steps = std::vector<std::int64_t>;

/// To the end, with checkpoints published only once in a while.
void run_slowly(TrainingRun& run, Random& random, std::uint64_t pause) {
  std::uint64_t events = 0;
  run.publish().held = true;
  const auto move = [&] {
    run.publish().held = ++events % pause != 0;
    return run.step(random);
  };
  while (move() || events % pause != 0) {
  }
}

TEST_CASE("slow saves: all ranks save the same steps, and the newest of them always",
          "[actors][P3][CK-8]") {
  const std::uint64_t first = Catch::rngSeed();
  std::size_t skipped = 0;
  for (std::uint64_t seed = first; seed < first + 300; ++seed) {
    RunSetup setup{
        .steps = 9, .eval_interval = 0, .checkpoint_interval = 1, .manual_streams = true};
    setup.parallel = split_over(seed % 2 == 0 ? 2 : 3, "full");
    INFO(setup.parallel.ranks << " ranks, schedule seed " << seed);
    TrainingRun run(setup);
    run.start();
    Random random(seed);
    run_slowly(run, random, 40 + seed % 400);
    REQUIRE(run.finished().exit_code == actors::kExitFinished);
    // No rank wrote rows of a checkpoint that another one skipped.
    REQUIRE(run.checkpoints.discarded.empty());
    REQUIRE(run.checkpoints.incoming.empty());
    REQUIRE(run.save_failed.empty());
    REQUIRE(run.saved.back() == setup.steps);
    Steps all = run.saved;
    all.insert(all.end(), run.skipped.begin(), run.skipped.end());
    std::sort(all.begin(), all.end());
    REQUIRE(all == Steps{1, 2, 3, 4, 5, 6, 7, 8, 9});
    skipped += run.skipped.size();
  }
  CHECK(skipped > 300);  // and the saves were slow
}

}  // namespace
}  // namespace train::test
