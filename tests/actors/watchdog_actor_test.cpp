#include "actors/watchdog_actor.hpp"

#include <catch2/catch.hpp>
#include <chrono>

#include "tests/support/actor_fixture.hpp"

namespace train::actors {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST_CASE("the stall report names who waits and what a stream is in", "[actors]") {
  test::TrainingRun run({.eval_interval = 0, .manual_streams = true});
  run.input().held = true;
  run.start();
  run.run();
  const std::int64_t now_ns = steady_now_ns();
  CHECK(stall_report(run.runtime(), 30 * kSecond, now_ns).empty());
  const std::string text = stall_report(run.runtime(), 30 * kSecond, now_ns + 31 * kSecond);
  CHECK_THAT(text, Catch::StartsWith("stalled rank=0 "));
  CHECK_THAT(text, Catch::Contains("rank waits for tokens of a lane for 31."));
  REQUIRE(run.waits->waiting().size() == 1);  // the launcher's board
  CHECK(run.waits->waiting().front().who == "conductor");
  CHECK_THAT(text, Catch::Contains("stream input is in read tokens of step 1, lane 0"));
  CHECK(text.find("compute") == std::string::npos);  // it has nothing to do
}

TEST_CASE("the stall report names the unit a kernel belongs to", "[actors]") {
  test::TrainingRun run({.eval_interval = 0, .lanes = 9, .manual_streams = true});
  run.compute().held = true;
  run.start();
  run.run();
  const std::string text = stall_report(run.runtime(), kSecond, steady_now_ns() + 2 * kSecond);
  CHECK_THAT(text, Catch::Contains("stream compute is in " + run.runtime().engine->unit_name(0) +
                                   " (forward) of step 1, lane 0"));
  CHECK_THAT(text, Catch::Contains("batch waits for a free lane slot"));
}

TEST_CASE("nothing is said of a run that is over", "[actors]") {
  test::TrainingRun run({});
  run.start();
  run.run();
  REQUIRE(run.over());
  CHECK(run.runtime().waits.waiting().empty());
  CHECK(run.waits->waiting().empty());
  CHECK(stall_report(run.runtime(), 0, steady_now_ns() + kSecond).empty());
}

TEST_CASE("the watchdog logs a stall once and goes on looking", "[actors]") {
  const test::TempDirectory directory;
  REQUIRE(log_to_file((directory / "log").string(), true));
  const auto stalls = [&] {
    const std::string log = test::read_bytes(directory / "log");
    int count = 0;
    for (auto at = log.find("stalled rank=0"); at != std::string::npos;
         at = log.find("stalled rank=0", at + 1)) {
      ++count;
    }
    return count;
  };
  test::TrainingRun run({.manual_streams = true});
  run.world().keep(spawn_watchdog(run.world().system(), run.context(), /*stall_ns=*/0));
  WaitBoard::Line line = run.runtime().waits.add("somebody");
  const auto look = [&] {
    run.world().run_actors();
    run.world().advance(std::chrono::seconds(1));
    run.world().run_actors();
  };
  look();
  CHECK(stalls() == 0);
  line.begin("Godot", 1);
  look();
  look();
  CHECK(stalls() == 1);
  line.end();
  look();
  line.begin("Godot", 2);
  look();
  CHECK(stalls() == 2);
}

}  // namespace
}  // namespace train::actors
