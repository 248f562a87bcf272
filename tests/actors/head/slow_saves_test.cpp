// Saves that are slower than training: which of them are made is the conductor's word, so that all
// ranks save the same ones.

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "base/exit_codes.hpp"
#include "tests/support/harness/soak.hpp"
#include "tests/support/runs/actor_fixture.hpp"

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

/// A run of 9 steps that saves after each, on 2 or 3 ranks, with slow saves.
struct SlowRun {
  TrainingRun run;

  explicit SlowRun(std::uint64_t seed) : run(setup_of(seed)) {}
  void finish(std::uint64_t seed) {
    run.start();
    Random random(seed);
    // Fifty seeds in a row have every pause between 40 and 432, whatever the first one is.
    run_slowly(run, random, 40 + 8 * (seed % 50));
  }
  /// Saved, skipped, failed: each step once.
  [[nodiscard]] Steps accounted() const {
    Steps all = run.saved;
    all.insert(all.end(), run.skipped.begin(), run.skipped.end());
    all.insert(all.end(), run.save_failed.begin(), run.save_failed.end());
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  static RunSetup setup_of(std::uint64_t seed) {
    RunSetup setup{
        .steps = 9, .eval_interval = 0, .checkpoint_interval = 1, .manual_streams = true};
    setup.parallel = split_over(seed % 2 == 0 ? 2 : 3, "full");
    return setup;
  }
};

const Steps kAllSteps = {1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST_CASE("slow saves: all ranks save the same steps, and the newest of them always",
          "[actors][.full][soak][P3][CK-8]") {
  const std::uint64_t first = Catch::rngSeed();
  const bool two_locations = GENERATE(false, true);
  const std::uint64_t runs = 50 * soak_factor();
  std::size_t skipped = 0;
  for (std::uint64_t seed = first; seed < first + runs; ++seed) {
    INFO("schedule seed " << seed);
    SlowRun slow(seed);
    TrainingRun& run = slow.run;
    run.checkpoints.two_locations = two_locations;
    slow.finish(seed);
    REQUIRE(run.finished().exit_code == kExitFinished);
    // No rank wrote rows of a checkpoint that another one skipped.
    REQUIRE(run.checkpoints.discarded.empty());
    REQUIRE(run.checkpoints.incoming.empty());
    REQUIRE(run.save_failed.empty());
    REQUIRE(run.saved.back() == 9);
    REQUIRE(slow.accounted() == kAllSteps);
    if (two_locations) {
      REQUIRE(run.checkpoints.local == std::set<std::int64_t>{9});
      REQUIRE(run.checkpoints.finalized == run.saved);
    }
    skipped += run.skipped.size();
  }
  CHECK(skipped > runs);  // and the saves were slow
}

TEST_CASE("slow saves: one rank's failures in any phase cost those saves and nothing else",
          "[actors][.full][soak][P3][CK-9]") {
  const std::uint64_t first = Catch::rngSeed();
  const std::uint64_t runs = 80 * soak_factor();
  std::size_t failed = 0, ended_in_failure = 0;
  for (std::uint64_t seed = first; seed < first + runs; ++seed) {
    INFO("schedule seed " << seed);
    SlowRun slow(seed);
    TrainingRun& run = slow.run;
    MemoryCheckpoints& disk = run.checkpoints;
    disk.two_locations = seed % 3 != 0;
    Random random(seed);
    disk.fail_rank = static_cast<std::int32_t>(random() % run.ranks());
    std::set<std::int64_t>* phases[] = {
        &disk.fail_write, &disk.throw_in_write, &disk.fail_seal,  &disk.fail_manifest,
        &disk.fail_send,  &disk.fail_publish,   &disk.fail_record};
    for (const std::int64_t step : kAllSteps) {
      if (random() % 2 == 0) {
        phases[random() % 7]->insert(step);
      }
    }
    slow.finish(seed);
    const bool last_failed = !run.save_failed.empty() && run.save_failed.back() == 9;
    const actors::RunFinished end = run.finished();
    REQUIRE(end.exit_code == (last_failed ? kExitFailure : kExitFinished));
    REQUIRE(run.steps.size() == 9);  // training went on
    REQUIRE(slow.accounted() == kAllSteps);
    REQUIRE(disk.recorded == run.saved);
    REQUIRE(disk.sent.empty());
    REQUIRE(disk.discarded == run.save_failed);
    for (const auto& [step, ranks] : disk.incoming) {
      REQUIRE(disk.local.contains(step));  // whole, and kept
    }
    failed += run.save_failed.size();
    ended_in_failure += last_failed ? 1 : 0;
  }
  CHECK(failed > runs / 2);
  CHECK(ended_in_failure > runs / 20);
  CHECK(ended_in_failure < runs - runs / 20);
}

}  // namespace
}  // namespace train::test
