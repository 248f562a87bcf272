#include "actors/snapshot_actor.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <limits>
#include <thread>

#include "actors/index_actor.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "tests/support/actor_fixture.hpp"

namespace train::actors {
namespace {

using Steps = std::vector<std::int64_t>;

/// Snapshot and index actor on manual streams, between recorders.
struct Fixture {
  test::TrainingRun run{{.manual_streams = true}};
  test::MemoryCheckpoints& disk = run.checkpoints;
  test::Recorder rank{run.world().system()};
  test::Recorder conductor{run.world().system()};
  IndexActor index =
      run.world().keep(spawn_index(run.world().system(), run.publish_stream(), disk.index_work()));
  SnapshotActor snapshot =
      run.world().keep(spawn_snapshot(run.world().system(), run.context(), disk.shard_writer(0)));
  caf::actor confirm = run.world().keep(run.world().system().spawn(
      [to = snapshot](caf::event_based_actor* self) -> caf::behavior {  // as the rank does
        return {[self, to](const CheckpointIndexed& message) { self->send(to, message); }};
      }));

  Fixture() {
    tell(ConnectSnapshot{rank.as<RankActor>(), conductor.as<ConductorActor>(), index});
    caf::anon_send(
        index, ConnectIndex{{caf::actor_cast<RankActor>(confirm)}, conductor.as<ConductorActor>()});
    run.disk().held = true;  // a slow disk, until finish()
  }
  template <class Message>
  void tell(const Message& message) {
    caf::anon_send(snapshot, message);
    run.run();
  }
  void finish() {
    run.disk().held = false;
    run.run();
  }
  Steps skipped() const {
    Steps steps;
    for (const CheckpointSkipped& event : conductor.all<CheckpointSkipped>()) {
      steps.push_back(event.step);
    }
    return steps;
  }
  Steps written() const {
    Steps steps;
    for (const CheckpointWritten& event : conductor.all<CheckpointWritten>()) {
      steps.push_back(event.step);
    }
    return steps;
  }
  /// The compute stream finds a loss that is no number; the gate stays shut from then on.
  void poison() {
    engine::RankEngine& engine = *run.runtime().engine;
    test::state_of(engine, test::kWeightOfBlock1)[0] = std::numeric_limits<float>::quiet_NaN();
    const auto& schedule = engine.schedule(engine::CommandKind::train_step);
    for (std::size_t unit = 0; unit < engine.unit_count(); ++unit) {
      const std::int32_t leaf = schedule.leaf_of(schedule.visit(0, true, unit));
      engine.forward(run.compute(), unit, {}, {.leaf = leaf});
    }
    engine.combine(run.compute());
    run.compute().run_all();
    REQUIRE(engine.poisoned());
  }
};

TEST_CASE("a snapshot is copied, written, recorded, in that order", "[actors][EX-3]") {
  Fixture f;
  f.run.copy().held = true;
  f.tell(CopyState{1});
  REQUIRE(f.rank.count<CopyEnqueued>() == 1);  // before the copy has run
  const kernels::Event copied = f.rank.all<CopyEnqueued>().front().copied;
  CHECK_FALSE(copied.reached());
  f.run.copy().held = false;
  f.run.run();
  CHECK(copied.reached());
  CHECK(f.disk.written.empty());
  f.finish();
  CHECK(f.disk.written.at(1) == f.run.runtime().engine->digest());
  CHECK(f.disk.recorded == Steps{1});
  CHECK(f.written() == Steps{1});
}

TEST_CASE("a slow disk: those between are skipped, never the newest", "[actors][EX-4]") {
  Fixture f;
  for (std::int64_t step = 1; step <= 5; ++step) {
    f.tell(CopyState{step});
    CHECK(f.rank.count<CopyEnqueued>() == static_cast<std::size_t>(step));  // training goes on
  }
  CHECK(f.skipped() == Steps{2, 3, 4});
  f.finish();
  CHECK(f.written() == Steps{1, 5});
}

TEST_CASE("with both buffers being copied into, the next snapshot waits", "[actors][EX-4]") {
  Fixture f;
  f.run.copy().held = true;
  f.tell(CopyState{1});
  f.tell(CopyState{2});
  f.tell(CopyState{3});
  CHECK(f.rank.count<CopyEnqueued>() == 2);
  REQUIRE(f.run.runtime().waits.waiting().size() == 1);
  CHECK(std::string(f.run.runtime().waits.waiting().front().what) == "a free staging buffer");
  f.run.copy().held = false;
  f.run.run();
  CHECK(f.rank.count<CopyEnqueued>() == 3);
  CHECK(f.run.runtime().waits.waiting().empty());
  f.finish();
  CHECK(f.written() == Steps{1, 3});
}

TEST_CASE("a failed save is reported, and the next one is made", "[actors]") {
  Fixture f;
  const bool in_index = GENERATE(false, true);
  (in_index ? f.disk.fail_record : f.disk.fail_write).insert(1);
  f.finish();
  f.tell(CopyState{1});
  REQUIRE(f.conductor.count<CheckpointFailed>() == 1);
  CHECK(f.conductor.all<CheckpointFailed>().front().step == 1);
  CHECK_THAT(f.conductor.all<CheckpointFailed>().front().text, Catch::Contains("full"));
  f.tell(CopyState{2});
  f.tell(CopyState{3});
  CHECK(f.written() == Steps{2, 3});  // the buffer of the failed one is free again
}

TEST_CASE("the drain ends when nothing is under way", "[actors][P3]") {
  Fixture f;
  f.tell(DrainSnapshots{});
  CHECK(f.rank.count<SnapshotsDrained>() == 1);
  f.tell(CopyState{1});
  f.tell(CopyState{2});
  f.tell(DrainSnapshots{});
  CHECK(f.rank.count<SnapshotsDrained>() == 1);
  f.disk.fail_write.insert(2);
  f.finish();
  CHECK(f.rank.count<SnapshotsDrained>() == 2);
  CHECK(f.disk.recorded == Steps{1});
}

TEST_CASE("a poisoned state is never written and takes nobody's place", "[actors]") {
  Fixture f;
  f.tell(CopyState{1});
  f.tell(CopyState{2});
  const std::uint64_t digest = f.run.runtime().engine->digest();
  f.poison();
  REQUIRE(f.run.runtime().engine->digest() != digest);
  f.tell(CopyState{3});
  f.tell(CopyState{4});
  f.tell(DrainSnapshots{});
  f.finish();
  CHECK(f.written() == Steps{1, 2});
  CHECK(f.disk.written.at(2) == digest);
  CHECK(f.skipped().empty());
  CHECK(f.rank.count<SnapshotsDrained>() == 1);
}

TEST_CASE("the snapshot actor does not outlive the index", "[actors]") {
  Fixture f;
  const test::Obituary obituary(f.run.world().system(), f.snapshot);
  f.run.run();
  test::strike_down(f.index, "broken");
  f.run.run();
  CHECK(obituary.died());
}

TEST_CASE("the update of the next step waits for the copy", "[actors][EX-1]") {
  const test::RunSetup setup{.manual_streams = true};
  const test::PlainRun plain(setup);
  test::TrainingRun run(setup);
  run.copy().held = true;
  run.start();
  run.run();
  // All of step 3 is on the stream, and its update is next.
  REQUIRE(run.compute().next_is("optimizer update"));
  REQUIRE(run.compute().next_mark().step == 2);
  std::atomic<bool> passed = false;
  std::thread stream([&] {
    run.compute().run_next();
    passed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(passed);
  CHECK(run.runtime().engine->digest() == plain.digests[2]);
  run.copy().held = false;
  run.copy().run_all();
  stream.join();
  run.run();
  CHECK(run.finished().exit_code == 0);
  CHECK(run.checkpoints.written.size() == 2);
  test::require_same(run, plain);
}

}  // namespace
}  // namespace train::actors
