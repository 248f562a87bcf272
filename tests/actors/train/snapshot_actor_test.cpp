#include "actors/train/rank_actors.hpp"

#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <limits>
#include <map>
#include <thread>
#include <utility>

#include "actors/head/index_actor.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/train/memory/staging.hpp"
#include "kernels/device/trace.hpp"
#include "run/program/run_program.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/runs/actor_fixture.hpp"
#include "tests/support/runs/require_same.hpp"

namespace train::actors {
namespace {

using Steps = std::vector<std::int64_t>;

/// Snapshot and index actor on manual streams, between recorders; the test plays the conductor.
struct SnapshotFixture {
  test::TrainingRun run{{.manual_streams = true}};
  test::MemoryCheckpoints& disk = run.checkpoints;
  test::Recorder rank{run.world().system()};
  test::Recorder conductor{run.world().system()};
  IndexActor index =
      run.world().keep(spawn_index(run.world().system(), run.publish_stream(), disk.index_work()));
  /// The scheduling policy of the thread that wrote each step's shard last.
  std::shared_ptr<std::map<std::int64_t, int>> policies =
      std::make_shared<std::map<std::int64_t, int>>();
  SnapshotActor snapshot = run.world().keep(spawn_snapshot(
      run.world().system(), run.context(), noting_policies(disk.shard_work(0), policies)));
  run::SaveSchedule saves;
  std::size_t saves_over = 0;
  std::size_t orders = 0;

  SnapshotFixture() {
    tell(ConnectSnapshot{rank.as<RankActor>(), conductor.as<ConductorActor>(), index});
    caf::anon_send(index, ConnectIndex{{rank.as<RankActor>()}, conductor.as<ConductorActor>()});
    run.disk().held = true;  // a slow disk, until finish()
  }
  static ShardWork noting_policies(ShardWork work,
                                   std::shared_ptr<std::map<std::int64_t, int>> policies) {
    work.write = [write = work.write, noted = std::move(policies)](std::int64_t step,
                                                                   const auto& views) {
      (*noted)[step] = ::sched_getscheduler(0);
      return write(step, views);
    };
    return work;
  }
  template <class Message>
  void tell(const Message& message) {
    caf::anon_send(snapshot, message);
    run.run();
  }
  void grant(std::optional<std::int64_t> step) {
    if (step) {
      caf::anon_send(index, WriteSnapshot{*step});
      tell(WriteSnapshot{*step});
    }
  }
  /// All ranks have said the same of it: its save may be published.
  void finish_step(std::int64_t step) {
    StepFinished event;
    event.step = step;
    caf::anon_send(index, event);
  }
  void take(std::int64_t step) {
    finish_step(step);
    const run::SaveSchedule::Take order = saves.take(step);
    if (order.write_now) {
      caf::anon_send(index, WriteSnapshot{step});
    }
    tell(CopyState{step, order.replaces, order.write_now});
    go_on();
  }
  /// Passes on what the index orders, and hears of saves that are over.
  void go_on() {
    for (;;) {
      if (orders < rank.count<ShardOrder>()) {
        tell(rank.all<ShardOrder>()[orders++]);
      } else if (saves_over < conductor.count<SaveFinished>()) {
        grant(saves.over(conductor.all<SaveFinished>()[saves_over++].step));
      } else {
        return;
      }
    }
  }
  void finish() {
    run.disk().held = false;
    run.run();
    go_on();
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
    const auto& schedule = engine.schedule(engine::kTrainStep);
    for (std::size_t unit = 0; unit < engine.unit_count(); ++unit) {
      const std::int32_t gradient_buffer =
          schedule.gradient_buffer_of(schedule.visit(0, true, unit));
      engine.lanes().forward(run.compute(), unit, {}, {.gradient_buffer = gradient_buffer});
    }
    engine.totals().combine(run.compute(), /*step=*/0);
    run.compute().run_all();
    REQUIRE(engine.totals().nonfinite());
  }
};

TEST_CASE("a snapshot is copied, written, recorded, in that order", "[actors][EX-3]") {
  SnapshotFixture f;
  f.run.copy().held = true;
  f.take(1);
  REQUIRE(f.rank.count<CopyEnqueued>() == 1);  // before the copy has run
  const kernels::Event copied = f.rank.all<CopyEnqueued>().front().copied;
  CHECK_FALSE(copied.reached());
  f.run.copy().held = false;
  f.run.run();
  CHECK(copied.reached());
  CHECK(f.disk.written.empty());
  f.finish();
  CHECK(f.disk.written.at(1) == f.run.runtime().engine->state().digest());
  CHECK(f.disk.recorded == Steps{1});
  CHECK(f.written() == Steps{1});
}

TEST_CASE("a slow disk: those between are skipped, never the newest", "[actors][EX-4][CK-8]") {
  SnapshotFixture f;
  for (std::int64_t step = 1; step <= 5; ++step) {
    f.take(step);
    CHECK(f.rank.count<CopyEnqueued>() == static_cast<std::size_t>(step));  // training goes on
  }
  f.finish();
  CHECK(f.written() == Steps{1, 5});
  CHECK(f.disk.written.at(5) == f.run.runtime().engine->state().digest());
}

TEST_CASE("a copy that has not begun takes no second buffer", "[actors][EX-4]") {
  SnapshotFixture f;
  f.run.copy().held = true;
  for (std::int64_t step = 1; step <= 4; ++step) {
    f.take(step);
  }
  CHECK(f.rank.count<CopyEnqueued>() == 4);
  f.run.copy().held = false;
  f.finish();
  CHECK(f.written() == Steps{1, 4});
}

TEST_CASE("a grant that overtakes its snapshot is kept", "[actors][EX-2]") {
  SnapshotFixture f;
  f.finish_step(1);
  caf::anon_send(f.index, WriteSnapshot{1});
  f.tell(WriteSnapshot{1});
  f.run.disk().held = false;
  f.tell(CopyState{1, -1, false});
  CHECK(f.written() == Steps{1});
}

TEST_CASE("a failed save is reported, and the next one is made", "[actors]") {
  SnapshotFixture f;
  const bool in_index = GENERATE(false, true);
  (in_index ? f.disk.fail_record : f.disk.fail_write).insert(1);
  f.finish();
  f.take(1);
  REQUIRE(f.conductor.count<CheckpointFailed>() == 1);
  CHECK(f.conductor.all<CheckpointFailed>().front().step == 1);
  CHECK_THAT(f.conductor.all<CheckpointFailed>().front().text, Catch::Contains("full"));
  f.take(2);
  f.take(3);
  CHECK(f.written() == Steps{2, 3});  // the buffer of the failed one is free again
}

TEST_CASE("a full disk: the copy stays until there is room, and is written then",
          "[actors][EX-4][P3]") {
  SnapshotFixture f;
  f.disk.fail_write.insert(1);
  f.disk.old_checkpoints = 1;
  f.take(1);
  const std::uint64_t digest = f.run.runtime().engine->state().digest();
  f.run.disk().held = false;
  f.run.run();
  REQUIRE(f.rank.count<ShardOrder>() == 1);  // to be passed on
  f.tell(DrainSnapshots{});
  CHECK(f.rank.count<SnapshotsDrained>() == 0);
  f.take(2);  // waits in the other buffer
  CHECK(f.written() == Steps{1, 2});
  CHECK(f.disk.written.at(1) == digest);
  CHECK(f.disk.rooms == Steps{1});
  CHECK(f.conductor.count<CheckpointFailed>() == 0);
  CHECK(f.rank.count<SnapshotsDrained>() == 1);
}

TEST_CASE("what a writer throws is a failed save, too", "[actors]") {
  SnapshotFixture f;
  f.disk.throw_in_write.insert(1);
  f.finish();
  f.take(1);
  REQUIRE(f.conductor.count<CheckpointFailed>() == 1);
  CHECK(f.conductor.all<CheckpointFailed>().front().text == "the controller is gone");
  f.take(2);
  CHECK(f.written() == Steps{2});
}

TEST_CASE("the drain ends when nothing is under way", "[actors][P3]") {
  SnapshotFixture f;
  f.tell(DrainSnapshots{});
  CHECK(f.rank.count<SnapshotsDrained>() == 1);
  f.take(1);
  f.take(2);
  f.tell(DrainSnapshots{});
  CHECK(f.rank.count<SnapshotsDrained>() == 1);
  f.disk.fail_write.insert(2);
  f.finish();
  CHECK(f.rank.count<SnapshotsDrained>() == 2);
  CHECK(f.disk.recorded == Steps{1});
}

TEST_CASE("a save gives way to steps, and the last one to nobody", "[actors][P3]") {
  SnapshotFixture f;
  f.run.runtime().background_io = BackgroundIo(BackgroundIo::Thread::own);
  f.run.disk().held = false;
  const int own_policy = ::sched_getscheduler(0);
  REQUIRE(own_policy != SCHED_IDLE);
  const std::int64_t last = f.run.runtime().engine->options().total_steps;
  REQUIRE(last > 3);
  f.take(1);
  CHECK(f.policies->at(1) == SCHED_IDLE);
  const bool stopped = GENERATE(false, true);
  if (!stopped) {
    f.take(last);
    CHECK(f.policies->at(last) == own_policy);
    return;
  }
  // A signal ends the run at step 3, while the save of step 2 is in its queue already.
  f.run.disk().held = true;
  f.take(2);
  f.take(3);
  f.tell(DrainSnapshots{});
  f.finish();
  CHECK(f.policies->at(2) == SCHED_IDLE);
  CHECK(f.policies->at(3) == own_policy);
}

TEST_CASE("a non-finite state is never written and takes nobody's place", "[actors]") {
  SnapshotFixture f;
  f.take(1);
  f.take(2);
  const std::uint64_t digest = f.run.runtime().engine->state().digest();
  f.poison();
  REQUIRE(f.run.runtime().engine->state().digest() != digest);
  f.take(3);
  f.take(4);
  const bool early = GENERATE(false, true);  // the conductor hears of it before 3 is granted
  if (early) {
    f.grant(f.saves.nonfinite_from(3));
    f.finish();
  } else {
    f.finish();
    CHECK(f.written() == Steps{1});
    f.grant(f.saves.nonfinite_from(3));
    f.go_on();
  }
  f.tell(DrainSnapshots{});
  CHECK(f.written() == Steps{1, 2});
  CHECK(f.disk.written.at(2) == digest);
  CHECK(f.saves.skipped().empty());
  CHECK(f.rank.count<SnapshotsDrained>() == 1);
}

TEST_CASE("orders of the index run on the disk stream, and are answered", "[actors][EX-3][P3]") {
  SnapshotFixture f;
  f.disk.incoming[7] = {0};
  f.tell(ShardOrder{7, ShardTask::seal, "manifest of 1"});
  CHECK(f.disk.local.empty());
  f.tell(DrainSnapshots{});
  CHECK(f.rank.count<SnapshotsDrained>() == 0);
  f.run.disk().held = false;
  const test::DownMonitor down_monitor(f.run.world().system(), f.index);
  f.run.run();  // no save of step 7 is under way there: the answer is one too many
  CHECK(f.disk.local == std::set<std::int64_t>{7});
  CHECK(f.rank.count<SnapshotsDrained>() == 1);
  CHECK(down_monitor.died());
}

/// Bytes of a staging buffer as the system counts them for this process.
std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST_CASE("staging: a copy of the bytes; the memory is the system's again afterwards",
          "[actors][staging]") {
  constexpr std::size_t kSize = 64U << 20U;
  std::vector<std::byte> state(kSize, std::byte{7});
  const std::vector<engine::StateView> views = {
      {.name = "a",
       .global_shape = {3},
       .first_row = 0,
       .rows = 3,
       .data = state.data(),
       .size_bytes = 12},
      {.name = "none",
       .global_shape = {3},
       .first_row = 0,
       .rows = 0,
       .data = nullptr,
       .size_bytes = 0},
      {.name = "b",
       .global_shape = {static_cast<std::int64_t>(kSize / 4 - 3)},
       .first_row = 0,
       .rows = static_cast<std::int64_t>(kSize / 4 - 3),
       .data = state.data() + 12,
       .size_bytes = kSize - 12}};
  const std::size_t before = resident_bytes();
  Staging staging;
  for (int round = 0; round < 3; ++round) {
    REQUIRE(staging.copy(views).ok());
    state[20] = std::byte{9};  // the copy is its own
    CHECK(staging.views()[2].data[8] == std::byte{7});
    CHECK(staging.views()[0].data[0] == std::byte{7});
    state[20] = std::byte{7};
    CHECK(resident_bytes() - before < kSize + (8U << 20U));
  }
  CHECK(resident_bytes() - before > kSize / 2);
  staging.release_pageable();
  CHECK(staging.views().empty());
  CHECK(resident_bytes() < before + (8U << 20U));
  CHECK(staging.copy({}).ok());
}

TEST_CASE("the snapshot actor does not outlive the index", "[actors]") {
  SnapshotFixture f;
  const test::DownMonitor down_monitor(f.run.world().system(), f.snapshot);
  f.run.run();
  test::kill_actor(f.index, "broken");
  f.run.run();
  CHECK(down_monitor.died());
}

TEST_CASE("the update of the next step waits for the copy", "[actors][EX-1][world]") {
  const test::RunSetup setup{.manual_streams = true};
  const test::PlainRun plain(setup);
  test::TrainingRun run(setup);
  run.copy().held = true;
  run.start();
  run.run();
  // All of step 3 is on the stream, and its update is next.
  REQUIRE(run.compute().next_is("optimizer update"));
  REQUIRE(run.compute().next_mark().step == 2);
  std::atomic<bool> waits = false;
  std::atomic<bool> passed = false;
  std::thread stream([&] {
    kernels::show_waits_in(waits);
    run.compute().run_next();
    passed = true;
  });
  CHECK(test::comes_true([&] { return waits || passed; }));
  CHECK_FALSE(passed);
  CHECK(run.runtime().engine->state().digest() == plain.digests[2]);
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
