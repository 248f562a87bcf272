// What fails in one of many ranks: the run ends once, and names the rank that failed, not those
// that lost it.

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <exception>
#include <limits>
#include <new>
#include <set>
#include <stdexcept>
#include <string_view>

#include "base/exit_codes.hpp"
#include "run/recovery/verdict.hpp"
#include "tests/support/runs/actor_fixture.hpp"
#include "tests/support/runs/require_same.hpp"

namespace train::test {
namespace {

RunSetup three_ranks(const char* strategy) {
  RunSetup setup{.steps = 3, .manual_streams = true};
  setup.parallel = split_over(3, strategy);
  return setup;
}

/// The rank and what it supervises.
std::vector<std::pair<std::string, std::size_t>> parts_of_a_rank() {
  TrainingRun run({});
  run.start();
  auto parts = run.parts();
  std::erase_if(parts, [](const auto& part) {
    const auto& name = part.first;
    return name == "conductor" || name == "reporter" || name == "index" || name == "observer" ||
           name == "watchdog";
  });
  REQUIRE(parts.size() > 10);
  return parts;
}

/// So many pieces of work, or until the run is over.
void run_events(TrainingRun& run, Random& random, int events) {
  for (int event = 0; event < events && !run.over() && run.step(random); ++event) {
  }
}

/// To the end, and long past it.
actors::RunFinished end_of(TrainingRun& run, Random& random) {
  run.run(random);
  run.world().advance(run::kHearsayTime + std::chrono::seconds(2));
  run.run(random);
  return run.finished();
}

TEST_CASE("whichever part of whichever rank dies, the run ends once and names that rank",
          "[actors][.full][P2]") {
  const auto part = GENERATE(from_range(parts_of_a_rank()));
  const RunSetup setup = three_ranks(GENERATE("full", "optimizer"));
  const PlainRun plain(setup);
  int struck = 0, lost = 0;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    for (int after = 5 + 211 * static_cast<int>(rank); after < 4000; after += 3 * 211) {
      INFO(part.first << " of rank " << rank << " dies after " << after << " events");
      TrainingRun run(setup);
      run.start();
      Random random(static_cast<std::uint64_t>(after) + rank);
      run_events(run, random, after);
      if (run.over()) {
        break;
      }
      kill_actor(run.part_of(rank, part.first, part.second), "struck down");
      const actors::RunFinished end = end_of(run, random);
      REQUIRE(end.exit_code == kExitFailure);
      REQUIRE_THAT(end.text, Catch::StartsWith("rank " + std::to_string(rank) + " failed: "));
      REQUIRE_THAT(end.text, Catch::Contains("struck down"));
      require_same(run, plain);
      ++struck;
      for (const actors::RankFailed& failure : run.failures) {
        INFO(failure.text);
        REQUIRE(failure.consequence == (failure.rank != static_cast<std::int32_t>(rank)));
        lost += failure.consequence ? 1 : 0;
      }
    }
  }
  CHECK(struck > 5);
  CHECK((lost > 0 || part.first == "rank"));  // others did fall with it
}

TEST_CASE("whichever stream of whichever rank fails, the run ends once and names that rank",
          "[actors][P2]") {
  const std::size_t which = GENERATE(0U, 1U, 2U, 3U);
  const RunSetup setup = three_ranks("full");
  const PlainRun plain(setup);
  int failed = 0;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    for (int after = 20; after < 4000; after += 307) {
      INFO("stream " << which << " of rank " << rank << " fails after " << after << " events");
      TrainingRun run(setup);
      run.start();
      Random random(static_cast<std::uint64_t>(after) + rank);
      run_events(run, random, after);
      if (run.over()) {
        break;
      }
      ManualStream& stream = *run.manual().at(4 * rank + which);
      stream.mark({.what = "something", .step = 7, .unit = 2, .lane = 1});
      stream.enqueue([] { throw std::runtime_error("broken"); });
      const actors::RunFinished end = end_of(run, random);
      REQUIRE(end.exit_code == kExitFailure);
      REQUIRE_THAT(end.text, Catch::StartsWith("rank " + std::to_string(rank) + " failed: "));
      REQUIRE_THAT(end.text, Catch::Contains("of step 8, lane 1: broken"));
      require_same(run, plain);
      ++failed;
    }
  }
  CHECK(failed > 10);
}

TEST_CASE("many ranks: whatever a stream was in when it fails, the text says of which step",
          "[actors][P2]") {
  const char* const strategy = GENERATE("full", "optimizer");
  const RunSetup setup = three_ranks(strategy);
  std::set<std::string> marks;
  for (int after = 30; after < 1500; after += 37) {
    TrainingRun run(setup);
    run.start();
    Random random(static_cast<std::uint64_t>(after));
    run_events(run, random, after);
    const std::size_t rank = static_cast<std::size_t>(after) % 3;
    if (run.over() || run.compute(rank).pending() == 0) {
      continue;
    }
    const kernels::Mark mark = run.compute(rank).next_mark();
    marks.insert(mark.what);
    run.compute(rank).fail_next(std::make_exception_ptr(std::bad_alloc()));
    const actors::RunFinished end = end_of(run, random);
    INFO("after " << after << " events: " << end.text);
    REQUIRE_THAT(end.text, Catch::StartsWith("rank " + std::to_string(rank) + " failed: "));
    REQUIRE_THAT(end.text, Catch::Contains(": out of memory (std::bad_alloc)"));
    // What comes before the first step, an evaluation, is of none.
    REQUIRE((mark.step >= 0 || run.steps.empty()));
    REQUIRE((mark.step < 0) == (end.text.find(" of step ") == std::string::npos));
  }
  INFO(marks.size());
  CHECK(marks.contains("pack"));
  const auto any_of = [&marks](std::string_view pass) {
    return std::ranges::any_of(marks,
                               [pass](const std::string& mark) { return mark.starts_with(pass); });
  };
  CHECK(any_of("forward"));
  CHECK(any_of("backward"));
}

TEST_CASE("many ranks: a transport that fails ends the run, and somebody is named", "[actors]") {
  const RunSetup setup = three_ranks("full");
  const auto channel = GENERATE(0U, 1U, 2U);
  for (int after = 100; after < 2000; after += 311) {
    INFO("channel " << channel << " after " << after << " events");
    TrainingRun run(setup);
    run.start();
    Random random(static_cast<std::uint64_t>(after));
    run_events(run, random, after);
    if (run.over()) {
      break;
    }
    run.runtime(1).transports[channel]->cancel("the cable is cut");
    run.run(random);
    // Everybody has only lost somebody: the first to say so is named, when no cause has come.
    INFO((run.over() ? run.finished().text : ""));
    REQUIRE_FALSE(run.over());
    run.world().advance(run::kHearsayTime);
    run.run(random);
    REQUIRE(run.finished().exit_code == kExitFailure);
    REQUIRE_THAT(run.finished().text, Catch::Contains("the cable is cut"));
    for (const actors::RankFailed& failure : run.failures) {
      REQUIRE(failure.consequence);
    }
  }
}

TEST_CASE("many ranks: a token outside the vocabulary is the user's error and names the file",
          "[actors]") {
  RunSetup setup = three_ranks("gradient");
  setup.bad_token_at = 700;
  TrainingRun run(setup);
  run.start();
  Random random(1);
  const actors::RunFinished end = end_of(run, random);
  CHECK(end.exit_code == kExitUserError);
  CHECK_THAT(end.text, Catch::Contains((run.directory() / "train.bin").string()));
  CHECK_THAT(end.text, Catch::Contains("position 700"));
}

TEST_CASE("many ranks: a weight that is no number stops all, names the layer once, saves nothing",
          "[actors][P3]") {
  RunSetup setup = three_ranks(GENERATE("none", "full", "gradient"));
  setup.steps = 8;
  const PlainRun plain(setup);
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    INFO("schedule seed " << seed);
    TrainingRun run(setup);
    run.start();
    Random random(seed);
    while (run.saved.empty()) {
      REQUIRE(run.step(random));
    }
    const auto weights = state_of(*run.runtime(seed % 3).engine, kWeightOfBlock1);
    REQUIRE_FALSE(weights.empty());
    weights[3] = std::numeric_limits<float>::quiet_NaN();
    const actors::RunFinished end = end_of(run, random);
    REQUIRE(end.exit_code == kExitFailure);
    REQUIRE_THAT(end.text, Catch::Contains("not finite"));
    const std::string layer = run.runtime().engine->unit_name(2) + " (forward)";
    REQUIRE(end.text.find(layer) != std::string::npos);
    REQUIRE(end.text.find(layer) == end.text.rfind(layer));
    REQUIRE(end.step < setup.steps);
    REQUIRE(run.steps.back().nonfinite);
    REQUIRE(run.nonfinite.size() == 3);  // every rank has looked, and found the same
    for (const actors::NonfiniteFound& found : run.nonfinite) {
      REQUIRE(found.text == run.nonfinite.front().text);
    }
    for (const auto& [step, digest] : run.checkpoints.written) {
      REQUIRE(step <= end.step);
    }
    REQUIRE(run.failures.empty());
  }
}

TEST_CASE("many ranks: one rank's shard that fails costs that checkpoint, and no more",
          "[actors][P3]") {
  RunSetup setup = three_ranks("full");
  setup.steps = 4;
  const PlainRun plain(setup);
  const bool last = GENERATE(false, true);
  TrainingRun run(setup);
  run.checkpoints.fail_write = {last ? 4 : 2};
  run.checkpoints.fail_rank = 2;
  run.start();
  run.run();
  CHECK(run.steps.size() == 4);
  CHECK(run.save_failed == std::vector<std::int64_t>{last ? 4 : 2});
  CHECK(run.checkpoints.discarded == run.save_failed);
  CHECK(run.checkpoints.incoming.empty());
  CHECK(run.saved == std::vector<std::int64_t>{last ? 2 : 4});
  CHECK(run.finished().exit_code == (last ? kExitFailure : kExitFinished));
  require_same(run, plain);
}

}  // namespace
}  // namespace train::test
