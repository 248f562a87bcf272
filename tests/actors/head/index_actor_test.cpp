#include "actors/head/index_actor.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "tests/support/checkpoints/memory_checkpoints.hpp"
#include "tests/support/devices/manual_stream.hpp"
#include "tests/support/runs/actor_world.hpp"

namespace train::actors {
namespace {

using Steps = std::vector<std::int64_t>;

/// An index actor of three ranks on a stream of the test, between recorders.
struct IndexFixture {
  test::ActorWorld world;
  test::MemoryCheckpoints disk;
  std::shared_ptr<test::ManualStream> stream =
      std::make_shared<test::ManualStream>(std::make_shared<std::uint64_t>(0));
  test::Recorder rank[3] = {test::Recorder(world.system()), test::Recorder(world.system()),
                            test::Recorder(world.system())};
  test::Recorder conductor{world.system()};
  IndexActor index;
  std::size_t orders = 0;  // followed
  std::size_t orders_alone[3] = {0, 0, 0};
  std::int64_t newest_step = 0;  // that the index has heard of

  explicit IndexFixture(bool two_locations = false) {
    disk.two_locations = two_locations;
    index = world.keep(spawn_index(world.system(), stream, disk.index_work()));
    tell(ConnectIndex{{rank[0].as<RankActor>(), rank[1].as<RankActor>(), rank[2].as<RankActor>()},
                      conductor.as<ConductorActor>()});
  }
  template <class Message>
  void tell(const Message& message) {
    caf::anon_send(index, message);
    world.run_actors();
  }
  void run() {
    do {
      stream->run_all();
      world.run_actors();
    } while (stream->pending() > 0);
  }
  void finish_step(std::int64_t step) {
    StepFinished event;
    event.step = step;
    tell(event);
    newest_step = step;
  }
  void grant(std::int64_t step) {
    if (newest_step < step) {
      finish_step(step);
    }
    tell(WriteSnapshot{step});
  }
  void write(std::int32_t number, std::int64_t step) {
    const auto written = disk.shard_work(number).write(step, {});
    if (!written) {
      tell(CheckpointFailed{step, number, written.error().message});
    } else {
      tell(ShardWritten{step, number, std::to_string(number), 1ULL << number, 5 + number});
    }
  }
  /// Every rank follows the order that all have been given; in reverse, which is as good.
  void follow() {
    for (const std::int32_t number : {2, 1, 0}) {
      const auto all = rank[number].all<ShardOrder>();
      REQUIRE(all.size() == orders + orders_alone[number] + 1);
      const ShardOrder& order = all.back();
      const ShardWork work = disk.shard_work(number);
      const Status done = order.task == ShardTask::seal   ? work.seal(order.step, order.manifest)
                          : order.task == ShardTask::send ? work.send(order.step)
                          : order.task == ShardTask::finalize ? work.finalize(order.step)
                                                              : work.discard(order.step);
      if (done) {
        tell(ShardDone{order.step, number, order.task});
      } else {
        tell(CheckpointFailed{order.step, number, done.error().message});
      }
    }
    ++orders;
  }
  /// The rank follows an order that the other two have not been given.
  void follow_alone(std::int32_t number) {
    const auto all = rank[number].all<ShardOrder>();
    REQUIRE(all.size() == ++orders_alone[number]);
    for (const std::int32_t other : {0, 1, 2}) {
      REQUIRE(rank[other].count<ShardOrder>() == orders_alone[other]);
    }
    const ShardOrder& order = all.back();
    if (order.task == ShardTask::write) {
      write(number, order.step);
    } else {
      REQUIRE(order.task == ShardTask::discard);
      tell(ShardDone{order.step, number, order.task});
    }
  }
  /// A whole save, of whatever end.
  void save(std::int64_t step) {
    grant(step);
    for (const std::int32_t number : {1, 0, 2}) {
      write(number, step);
    }
    run();
    while (rank[0].count<ShardOrder>() > orders + orders_alone[0]) {
      follow();
      run();
    }
  }
  Steps finished() const {
    Steps steps;
    for (const SaveFinished& message : conductor.all<SaveFinished>()) {
      steps.push_back(message.step);
    }
    return steps;
  }
};

TEST_CASE("index: the shards of all ranks make one checkpoint, in any order", "[actors][P3]") {
  std::vector<std::int32_t> order = {0, 1, 2};
  do {
    IndexFixture f;
    f.grant(7);
    f.write(order[0], 7);
    f.write(order[1], 7);
    f.run();
    CHECK(f.disk.written.empty());
    CHECK(f.finished().empty());
    f.write(order[2], 7);
    CHECK(f.finished().empty());  // not before it is published
    f.run();
    CHECK(f.disk.written == std::map<std::int64_t, std::uint64_t>{{7, 7}});
    CHECK(f.disk.recorded == Steps{7});
    CHECK(f.disk.incoming.empty());
    CHECK(f.finished() == Steps{7});
    REQUIRE(f.conductor.size() == 2);
    const CheckpointWritten event = f.conductor.all<CheckpointWritten>().front();
    CHECK(event.step == 7);
    CHECK(event.directory == "7");
    CHECK(event.elapsed_ns >= 7);  // of the slowest rank, and the publishing
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("index: one rank that failed gives the checkpoint up for all", "[actors][P3]") {
  const std::int32_t failing = GENERATE(0, 1, 2);
  IndexFixture f;
  f.disk.fail_rank = failing;
  f.disk.fail_write.insert(4);
  f.grant(4);
  for (const std::int32_t number : {0, 1, 2}) {
    CHECK(f.conductor.size() == 0);
    f.write(number, 4);
  }
  f.run();
  f.follow_alone(failing);
  CHECK(f.disk.rooms == Steps{4});  // there was none to be made
  CHECK(f.disk.written.empty());
  CHECK(f.disk.recorded.empty());
  CHECK(f.disk.discarded == Steps{4});
  CHECK(f.disk.incoming.empty());
  CHECK(f.finished() == Steps{4});
  REQUIRE(f.conductor.count<CheckpointFailed>() == 1);
  CHECK(f.conductor.all<CheckpointFailed>().front().rank == failing);
  REQUIRE(f.disk.events.size() == 1);
  CHECK(f.disk.events.front().first == "failed");
  CHECK(f.disk.events.front().second == "step=4 disk full");
  f.save(5);
  CHECK(f.disk.recorded == Steps{5});
}

TEST_CASE("index: a full disk: room is made, and the rank that had none writes again",
          "[actors][P3]") {
  const std::int32_t full = GENERATE(0, 1, 2);
  IndexFixture f;
  f.disk.fail_rank = full;
  f.disk.fail_write.insert(4);
  f.disk.old_checkpoints = 1;
  f.grant(4);
  for (const std::int32_t number : {0, 1, 2}) {
    f.write(number, 4);
  }
  CHECK(f.disk.rooms.empty());  // not in the actor: on the disk stream
  f.run();
  CHECK(f.disk.rooms == Steps{4});
  CHECK(f.conductor.size() == 0);
  CHECK(f.disk.written.empty());
  f.follow_alone(full);
  f.run();
  CHECK(f.disk.written == std::map<std::int64_t, std::uint64_t>{{4, 7}});
  CHECK(f.disk.recorded == Steps{4});
  CHECK(f.disk.discarded.empty());
  CHECK(f.conductor.count<CheckpointFailed>() == 0);
  CHECK(f.finished() == Steps{4});
}

TEST_CASE("index: a full disk: a save is tried again once", "[actors][P3]") {
  IndexFixture f;
  f.disk.fail_rank = 1;
  f.disk.fail_write.insert(4);
  f.disk.old_checkpoints = 5;
  f.disk.room_helps = false;
  f.grant(4);
  for (const std::int32_t number : {0, 1, 2}) {
    f.write(number, 4);
  }
  f.run();
  REQUIRE(f.rank[1].all<ShardOrder>().back().task == ShardTask::write);
  f.follow_alone(1);
  f.run();
  REQUIRE(f.rank[1].all<ShardOrder>().back().task == ShardTask::discard);
  CHECK(f.finished().empty());  // not before the rank has its buffer back
  f.follow_alone(1);
  CHECK(f.finished() == Steps{4});
  CHECK(f.disk.rooms == Steps{4});
  CHECK(f.disk.discarded == Steps{4});
  REQUIRE(f.conductor.count<CheckpointFailed>() == 1);
  CHECK(f.conductor.all<CheckpointFailed>().front().text == "disk full");
  f.save(5);
  CHECK(f.disk.recorded == Steps{5});
}

TEST_CASE("index: no room is made if a shard failed for another reason as well", "[actors][P3]") {
  IndexFixture f;
  f.disk.old_checkpoints = 1;
  f.grant(4);
  f.tell(CheckpointFailed{4, 2, "disk full"});
  f.write(0, 4);
  f.tell(CheckpointFailed{4, 1, "Input/output error"});
  f.run();
  f.follow_alone(2);
  CHECK(f.disk.rooms.empty());
  CHECK(f.finished() == Steps{4});
}

TEST_CASE("index: two places: room is made in the project's, not for a full local disk",
          "[actors][P3]") {
  const bool local = GENERATE(false, true);
  IndexFixture f(true);
  f.disk.fail_rank = 1;
  f.disk.old_checkpoints = 1;
  f.disk.send_failure = "exit code 11: No space left on device; disk full: free space there";
  (local ? f.disk.fail_write : f.disk.fail_send).insert(4);
  f.grant(4);
  for (const std::int32_t number : {0, 1, 2}) {
    f.write(number, 4);
  }
  f.run();
  if (local) {
    CHECK(f.disk.rooms.empty());
    f.follow();  // the order to discard
    CHECK(f.conductor.count<CheckpointFailed>() == 1);
    CHECK(f.finished() == Steps{4});
    return;
  }
  f.follow();  // seal
  f.run();
  f.follow();  // send
  f.run();
  CHECK(f.disk.rooms == Steps{4});
  REQUIRE(f.rank[1].count<ShardOrder>() == 3);
  CHECK(f.rank[0].count<ShardOrder>() == 2);
  CHECK(f.rank[1].all<ShardOrder>().back().task == ShardTask::send);
  REQUIRE(f.disk.shard_work(1).send(4));
  f.tell(ShardDone{4, 1, ShardTask::send});
  f.run();
  CHECK(f.disk.recorded == Steps{4});
  CHECK(f.conductor.count<CheckpointFailed>() == 0);
}

TEST_CASE("index: the first failure is the one that is reported", "[actors]") {
  IndexFixture f;
  f.grant(4);
  f.tell(CheckpointFailed{4, 2, "disk full"});
  f.write(0, 4);
  f.tell(CheckpointFailed{4, 1, "no such directory"});
  f.run();
  REQUIRE(f.conductor.count<CheckpointFailed>() == 1);
  CHECK(f.conductor.all<CheckpointFailed>().front().text == "disk full");
  CHECK(f.conductor.all<CheckpointFailed>().front().rank == 2);
}

TEST_CASE("index: a checkpoint that cannot be published or recorded is a failed save",
          "[actors][P3]") {
  const int where = GENERATE(0, 1, 2);
  IndexFixture f;
  (where == 0   ? f.disk.fail_publish
   : where == 1 ? f.disk.throw_in_publish
                : f.disk.fail_record)
      .insert(1);
  f.save(1);
  f.save(2);
  REQUIRE(f.conductor.count<CheckpointFailed>() == 1);
  const CheckpointFailed failed = f.conductor.all<CheckpointFailed>().front();
  CHECK(failed.step == 1);
  CHECK(failed.rank == -1);
  const char* texts[] = {"no such directory", "the disk is gone", "index full"};
  CHECK(failed.text == texts[where]);
  CHECK(f.disk.recorded == Steps{2});  // and the next one is made
  CHECK(f.finished() == Steps{1, 2});
}

TEST_CASE("index: two places: sealed on every node, sent by every rank, then published",
          "[actors][P3]") {
  IndexFixture f(true);
  f.grant(3);
  for (const std::int32_t number : {0, 1, 2}) {
    f.write(number, 3);
  }
  CHECK(f.rank[0].count<ShardOrder>() == 0);  // the manifest is made on the disk stream
  f.run();
  CHECK(f.rank[1].all<ShardOrder>().back().task == ShardTask::seal);
  CHECK(f.conductor.count<CheckpointLocal>() == 0);
  f.follow();
  CHECK(f.conductor.count<CheckpointLocal>() == 1);
  CHECK(f.rank[1].all<ShardOrder>().back().task == ShardTask::send);
  f.run();
  CHECK(f.disk.written.empty());
  f.follow();
  f.run();
  CHECK(f.disk.recorded == Steps{3});
  CHECK(f.conductor.count<CheckpointWritten>() == 1);
  CHECK(f.finished().empty());
  CHECK(f.rank[1].all<ShardOrder>().back().task == ShardTask::finalize);
  f.follow();
  CHECK(f.finished() == Steps{3});
  using checkpoint::CheckpointState;
  CHECK(f.disk.notes ==
        std::vector<std::pair<std::int64_t, CheckpointState>>{{3, CheckpointState::writing},
                                                              {3, CheckpointState::local},
                                                              {3, CheckpointState::publishing}});
  CHECK(f.disk.told == std::vector<std::string>{"3 checkpoint_copied", "3 checkpoint_local",
                                                "3 checkpoint_verified"});
  f.save(4);
  CHECK(f.disk.local == std::set<std::int64_t>{4});  // the newest published one only
}

TEST_CASE("index: two places: whatever fails, the next save is made; a whole local copy stays",
          "[actors][P3]") {
  const int where = GENERATE(range(0, 6));
  const std::int32_t failing = GENERATE(0, 2);
  IndexFixture f(true);
  f.disk.fail_rank = failing;
  std::set<std::int64_t>* failures[] = {&f.disk.fail_write,   &f.disk.fail_manifest,
                                        &f.disk.fail_seal,    &f.disk.fail_send,
                                        &f.disk.fail_publish, &f.disk.fail_record};
  f.save(1);
  failures[where]->insert(2);
  f.save(2);
  INFO("failure " << where << " of rank " << failing);
  REQUIRE(f.conductor.count<CheckpointFailed>() == 1);
  CHECK(f.conductor.all<CheckpointFailed>().front().step == 2);
  CHECK(f.disk.recorded == Steps{1});
  CHECK(f.disk.sent.empty());  // nothing of it in the project's place
  const bool whole = where >= 3;
  CHECK(f.conductor.count<CheckpointLocal>() == (whole ? 2U : 1U));
  if (whole) {
    CHECK(f.disk.local == std::set<std::int64_t>{1, 2});
  } else {
    CHECK_FALSE(f.disk.incoming.contains(2));
  }
  CHECK(f.disk.discarded == Steps{2});
  f.save(3);
  CHECK(f.disk.recorded == Steps{1, 3});
  CHECK(f.disk.local == std::set<std::int64_t>{3});
  CHECK(f.finished() == Steps{1, 2, 3});
}

TEST_CASE("index: a save whose state was dropped by all ranks makes room for the one before",
          "[actors][P3]") {
  IndexFixture f;
  f.grant(3);
  f.save(2);
  CHECK(f.disk.discarded == Steps{3});
  CHECK(f.disk.recorded == Steps{2});
}

TEST_CASE("index: steps are journalled in batches, at a save, and at the end", "[actors]") {
  IndexFixture f;
  const auto finish_steps = [&f](std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) {
      f.finish_step(step);
    }
  };
  const auto batch = static_cast<std::int64_t>(run::kJournalBatch);
  finish_steps(1, batch - 1);
  CHECK(f.stream->pending() == 0);
  finish_steps(batch, 3 * batch);
  CHECK(f.stream->pending() == 1);  // one batch at a time, however slow the disk
  f.stream->run_all();
  CHECK(f.disk.journal.size() == run::kJournalBatch);
  f.run();
  CHECK(f.disk.journal.size() == 3 * run::kJournalBatch);
  finish_steps(3 * batch + 1, 3 * batch + 2);
  f.grant(3 * batch + 2);
  f.run();
  CHECK(f.disk.journal.size() == 3 * run::kJournalBatch + 2);
  finish_steps(3 * batch + 3, 3 * batch + 3);
  caf::anon_send_exit(f.index, caf::exit_reason::user_shutdown);
  f.world.run_actors();
  f.run();
  CHECK(f.disk.journal.back() == 3 * batch + 3);
  CHECK(std::is_sorted(f.disk.journal.begin(), f.disk.journal.end()));
}

TEST_CASE("index: steps that the journal refuses keep their checkpoint from being published",
          "[actors][P3][CK-7]") {
  const bool two_locations = GENERATE(false, true);
  IndexFixture f(two_locations);
  f.disk.journal_failure = "no such device";
  f.save(3);
  CHECK(f.disk.recorded.empty());
  CHECK(f.disk.written.empty());
  REQUIRE(f.conductor.count<CheckpointFailed>() == 1);
  CHECK(f.conductor.all<CheckpointFailed>().front().text.find("no such device") !=
        std::string::npos);
  CHECK(f.finished() == Steps{3});
  f.disk.journal_failure.clear();
  f.save(4);
  CHECK(f.disk.recorded == Steps{4});
  CHECK(f.disk.journal == Steps{3, 4});
}

TEST_CASE("index: old checkpoints make room for steps, too", "[actors][P3][CK-7]") {
  IndexFixture f;
  f.disk.journal_failure = "disk full";
  f.disk.old_checkpoints = 1;
  f.save(3);
  CHECK(f.disk.recorded == Steps{3});
  CHECK(f.disk.journal == Steps{3});
}

TEST_CASE("index: a checkpoint appears only after its steps are in the journal", "[actors][P3]") {
  const bool two_locations = GENERATE(false, true);
  IndexFixture f(two_locations);
  f.finish_step(6);
  f.tell(WriteSnapshot{7});
  for (const std::int32_t number : {0, 1, 2}) {
    f.write(number, 7);
  }
  f.run();
  CHECK(f.disk.journal == Steps{6});
  CHECK(f.disk.written.empty());
  CHECK(f.rank[0].count<ShardOrder>() == 0);
  f.finish_step(7);  // by another way than the shards, and later
  f.stream->run_all();
  CHECK(f.disk.journal == Steps{6, 7});
  f.run();
  while (f.rank[0].count<ShardOrder>() > f.orders) {
    f.follow();
    f.run();
  }
  CHECK(f.disk.recorded == Steps{7});
  CHECK(f.finished() == Steps{7});
}

TEST_CASE("index: it hears of evaluations and of skipped snapshots", "[actors]") {
  IndexFixture f;
  f.tell(
      EvaluationFinished{.step = 10, .rank = 0, .cross_entropy = FloatBits(2.5), .accuracy = {}});
  f.tell(CheckpointSkipped{9});
  f.run();
  CHECK(f.disk.losses == std::map<std::int64_t, double>{{10, 2.5}});
  REQUIRE(f.disk.events.size() == 1);
  CHECK(f.disk.events.front().first == "skipped");
}

}  // namespace
}  // namespace train::actors
