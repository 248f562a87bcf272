#include <catch2/catch.hpp>
#include <limits>
#include <stdexcept>

#include "actors/messages/command_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "base/exit_codes.hpp"
#include "tests/support/runs/actor_fixture.hpp"
#include "tests/support/runs/require_same.hpp"

// What fails, who notices, and that the run ends: every case ends in exactly one RunFinished.
namespace train::test {
namespace {

void run_some_events(TrainingRun& run, Random& random, int events) {
  for (int event = 0; event < events && run.step(random); ++event) {
  }
}

/// Every actor of a run but those that nobody depends on, and the conductor: its end is the main
/// thread's to notice.
std::vector<std::pair<std::string, std::size_t>> victims() {
  TrainingRun run({});
  run.start();
  auto parts = run.parts();
  std::erase_if(parts, [](const auto& part) {
    return part.first == "conductor" || part.first == "observer" || part.first == "watchdog";
  });
  REQUIRE(parts.size() > 12);
  return parts;
}

TEST_CASE("a layer that throws ends the run; the text names rank, unit and step", "[actors]") {
  TrainingRun run({.eval_interval = 0});
  run.start();
  Random random(3);
  while (run.steps.empty()) {
    REQUIRE(run.step(random));
  }
  // A lane that nobody sent forward.
  const auto layer = caf::actor_cast<actors::LayerActor>(run.part("layer", 1));
  caf::anon_send(layer, actors::BackwardLane{{.step = 1, .lane = 17}});
  run.run(random);
  const actors::RunFinished end = run.finished();
  CHECK(end.exit_code == kExitFailure);
  CHECK_THAT(end.text, Catch::StartsWith("rank 0 failed: "));
  CHECK_THAT(end.text, Catch::Contains(run.runtime().engine->unit_name(1)));
  CHECK_THAT(end.text, Catch::Contains("step 2"));
  CHECK_THAT(end.text, Catch::Contains("check failed"));
}

TEST_CASE("no later message revives a run that failed", "[actors]") {
  TrainingRun run({.manual_streams = true});
  run.start();
  Random random(4);
  run_some_events(run, random, 200);
  run.compute().enqueue([] { throw std::runtime_error("the device is gone"); });
  run.run(random);
  const std::size_t steps = run.steps.size();
  const auto saved = run.checkpoints.written;
  REQUIRE(run.finished().exit_code == kExitFailure);
  run.request_stop();
  caf::anon_send(caf::actor_cast<actors::RankActor>(run.part("rank")),
                 actors::Command{90, engine::CommandKind::pass, engine::kTrainStep.index, 3});
  caf::anon_send(caf::actor_cast<actors::BatchActor>(run.part("batch")), actors::PrepareLanes{});
  caf::anon_send(caf::actor_cast<actors::SnapshotActor>(run.part("snapshot")),
                 actors::CopyState{9});
  run.run(random);
  CHECK(run.finished().exit_code == kExitFailure);  // and it is still the only one
  CHECK(run.steps.size() == steps);
  CHECK(run.checkpoints.written == saved);
}

TEST_CASE("a stream that fails ends the run, whichever and whenever", "[actors]") {
  const RunSetup setup{.manual_streams = true};
  const PlainRun plain(setup);
  const int which = GENERATE(0, 1, 2, 3);
  for (int after = 20; after < 500; after += 40) {
    INFO("stream " << which << " fails after " << after << " events");
    TrainingRun run(setup);
    run.start();
    Random random(static_cast<std::uint64_t>(after));
    run_some_events(run, random, after);
    ManualStream* streams[] = {&run.compute(), &run.copy(), &run.input(), &run.disk()};
    streams[which]->mark({.what = "something", .step = 7, .unit = 2, .lane = 1});
    streams[which]->enqueue([] { throw std::runtime_error("out of order\nand broken"); });
    run.run(random);
    const actors::RunFinished end = run.finished();
    REQUIRE(end.exit_code == kExitFailure);
    REQUIRE_THAT(end.text,
                 Catch::Contains("rank 0 failed") && Catch::Contains("of step 8, lane 1"));
    REQUIRE_THAT(end.text, Catch::Contains(run.runtime().engine->unit_name(2)));
    REQUIRE_THAT(end.text, Catch::Contains("out of order and broken"));  // one line
    require_same(run, plain);  // and nothing wrong was computed or saved on the way
  }
}

TEST_CASE("whoever dies, the run ends with the reason", "[actors]") {
  const auto part = GENERATE(from_range(victims()));
  for (int after = 5; after < 400; after += 37) {
    INFO(part.first << " dies after " << after << " events");
    TrainingRun run({.manual_streams = true});
    run.start();
    Random random(static_cast<std::uint64_t>(after));
    run_some_events(run, random, after);
    REQUIRE_FALSE(run.over());
    kill_actor(run.part(part.first, part.second), "struck down");
    run.run(random);
    REQUIRE(run.finished().exit_code == kExitFailure);
    REQUIRE_THAT(run.finished().text, Catch::Contains("struck down"));
  }
}

TEST_CASE("a part that ends without a reason is a failure too", "[actors]") {
  TrainingRun run({});
  run.start();
  Random random(1);
  run_some_events(run, random, 60);
  caf::anon_send_exit(run.part("batch"), caf::exit_reason::user_shutdown);
  run.run(random);
  CHECK(run.finished().exit_code == kExitFailure);
  CHECK_THAT(run.finished().text, Catch::Contains("batch ended unasked"));
}

TEST_CASE("a token outside the vocabulary is the user's error and names the file", "[actors]") {
  TrainingRun run({.bad_token_at = 700, .manual_streams = GENERATE(false, true)});
  run.start();
  run.run();
  const actors::RunFinished end = run.finished();
  CHECK(end.exit_code == kExitUserError);
  CHECK_THAT(end.text, Catch::Contains((run.directory() / "train.bin").string()));
  CHECK_THAT(end.text, Catch::Contains("position 700"));
}

TEST_CASE("a weight that is no number: the text names the layer, nothing is saved", "[actors]") {
  const RunSetup setup{.steps = 8, .manual_streams = true};
  const PlainRun plain(setup);
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    INFO("schedule seed " << seed);
    TrainingRun run(setup);
    run.start();
    Random random(seed);
    while (run.saved.empty()) {
      REQUIRE(run.step(random));
    }
    run.disk().held = seed % 2 == 0;  // a snapshot may still be waiting for the disk
    const std::size_t good_steps = run.steps.size();
    state_of(*run.runtime().engine, kWeightOfBlock1)[3] = std::numeric_limits<float>::quiet_NaN();
    run.run(random);
    run.disk().held = false;
    run.run(random);
    const actors::RunFinished end = run.finished();
    REQUIRE(end.exit_code == kExitFailure);
    REQUIRE_THAT(end.text, Catch::Contains("not finite"));
    REQUIRE_THAT(end.text, Catch::Contains(run.runtime().engine->unit_name(2) + " (forward)"));
    REQUIRE(end.step >= static_cast<std::int64_t>(good_steps));
    REQUIRE(end.step < setup.steps);
    REQUIRE(run.steps.back().nonfinite);
    // What is saved is what the plain loop had, whole; the damaged weights are nowhere.
    for (const auto& [step, digest] : run.checkpoints.written) {
      REQUIRE(step <= end.step);
    }
  }
}

TEST_CASE("a checkpoint that fails does not end the run", "[actors]") {
  const bool last = GENERATE(false, true);
  TrainingRun run({});
  run.checkpoints.fail_write = last ? std::set<std::int64_t>{4} : std::set<std::int64_t>{2};
  run.start();
  run.run();
  CHECK(run.steps.size() == 4);
  CHECK(run.save_failed.size() == 1);
  CHECK(run.finished().exit_code == (last ? kExitFailure : kExitFinished));
}

}  // namespace
}  // namespace train::test
