#include "actors/index_actor.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "actors/messages/connect_messages.hpp"
#include "tests/support/actor_world.hpp"
#include "tests/support/manual_stream.hpp"
#include "tests/support/memory_checkpoints.hpp"

namespace train::actors {
namespace {

using Steps = std::vector<std::int64_t>;

/// An index actor of three ranks on a stream of the test, between recorders.
struct Fixture {
  test::ActorWorld world;
  test::MemoryCheckpoints disk;
  std::shared_ptr<test::ManualStream> stream =
      std::make_shared<test::ManualStream>(std::make_shared<std::uint64_t>(0));
  test::Recorder rank[3] = {test::Recorder(world.system()), test::Recorder(world.system()),
                            test::Recorder(world.system())};
  test::Recorder conductor{world.system()};
  IndexActor index = world.keep(spawn_index(world.system(), stream, disk.index_work()));

  Fixture() {
    tell(ConnectIndex{{rank[0].as<RankActor>(), rank[1].as<RankActor>(), rank[2].as<RankActor>()},
                      conductor.as<ConductorActor>()});
  }
  template <class Message>
  void tell(const Message& message) {
    caf::anon_send(index, message);
    world.run_actors();
  }
  void run() {
    stream->run_all();
    world.run_actors();
  }
  void write(std::int32_t number, std::int64_t step) {
    REQUIRE(disk.shard_writer(number)(step, {}).ok());
    tell(ShardWritten{step, number, std::to_string(number), 1ULL << number, 5 + number});
  }
  /// Each rank has heard that it may use its staging again, once for each step.
  void require_confirmed(const Steps& steps) const {
    for (const test::Recorder& one : rank) {
      Steps heard;
      for (const CheckpointIndexed& message : one.all<CheckpointIndexed>()) {
        heard.push_back(message.step);
      }
      CHECK(heard == steps);
    }
  }
};

TEST_CASE("index: the shards of all ranks make one checkpoint, in any order", "[actors][P3]") {
  std::vector<std::int32_t> order = {0, 1, 2};
  do {
    Fixture f;
    f.write(order[0], 7);
    f.write(order[1], 7);
    f.run();
    CHECK(f.disk.written.empty());
    f.require_confirmed({});
    f.write(order[2], 7);
    f.require_confirmed({});  // not before it is published
    f.run();
    CHECK(f.disk.written == std::map<std::int64_t, std::uint64_t>{{7, 7}});
    CHECK(f.disk.recorded == Steps{7});
    CHECK(f.disk.incoming.empty());
    f.require_confirmed({7});
    REQUIRE(f.conductor.size() == 1);
    const CheckpointWritten event = f.conductor.all<CheckpointWritten>().front();
    CHECK(event.step == 7);
    CHECK(event.directory == "7");
    CHECK(event.elapsed_ns >= 7);  // of the slowest rank, and the publishing
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("index: two checkpoints whose shards come mixed", "[actors][P3]") {
  Fixture f;
  f.write(0, 1);
  f.write(0, 2);
  f.write(2, 1);
  f.write(1, 1);
  f.write(1, 2);
  f.run();
  CHECK(f.disk.recorded == Steps{1});
  f.write(2, 2);
  f.run();
  CHECK(f.disk.recorded == Steps{1, 2});
  f.require_confirmed({1, 2});
}

TEST_CASE("index: one rank that failed or skipped gives the checkpoint up", "[actors][P3]") {
  std::vector<std::int32_t> order = {0, 1, 2};
  const bool failed = GENERATE(false, true);
  do {
    Fixture f;
    for (const std::int32_t number : order) {
      CHECK(f.conductor.size() == 0);
      if (number != 1) {
        f.write(number, 4);
      } else if (failed) {
        f.tell(CheckpointFailed{4, 1, "disk full"});
      } else {
        f.tell(CheckpointSkipped{4, 1});
      }
    }
    f.run();
    CHECK(f.disk.written.empty());
    CHECK(f.disk.recorded.empty());
    CHECK(f.disk.discarded == Steps{4});
    CHECK(f.disk.incoming.empty());
    f.require_confirmed({4});
    CHECK(f.conductor.size() == 1);
    CHECK(f.conductor.count<CheckpointFailed>() == (failed ? 1U : 0U));
    CHECK(f.conductor.count<CheckpointSkipped>() == (failed ? 0U : 1U));
    f.write(0, 5);
    f.write(1, 5);
    f.write(2, 5);
    f.run();
    CHECK(f.disk.recorded == Steps{5});
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("index: what every rank skipped costs the disk nothing", "[actors][EX-4]") {
  Fixture f;
  for (const std::int32_t number : {0, 1, 2}) {
    f.tell(CheckpointSkipped{3, number});
  }
  CHECK(f.stream->pending() == 0);
  f.require_confirmed({3});
  CHECK(f.conductor.count<CheckpointSkipped>() == 1);
}

TEST_CASE("index: the first failure is the one that is reported", "[actors]") {
  Fixture f;
  f.tell(CheckpointFailed{4, 2, "disk full"});
  f.tell(CheckpointSkipped{4, 0});
  f.tell(CheckpointFailed{4, 1, "no such directory"});
  f.run();
  REQUIRE(f.conductor.size() == 1);
  CHECK(f.conductor.all<CheckpointFailed>().front().text == "disk full");
  CHECK(f.conductor.all<CheckpointFailed>().front().rank == 2);
}

TEST_CASE("index: a checkpoint that cannot be published or recorded is a failed save",
          "[actors][P3]") {
  const int where = GENERATE(0, 1, 2);
  Fixture f;
  (where == 0   ? f.disk.fail_publish
   : where == 1 ? f.disk.throw_in_publish
                : f.disk.fail_record)
      .insert(1);
  for (const std::int64_t step : {1, 2}) {
    for (const std::int32_t number : {0, 1, 2}) {
      f.write(number, step);
    }
    f.run();
  }
  REQUIRE(f.conductor.count<CheckpointFailed>() == 1);
  const CheckpointFailed failed = f.conductor.all<CheckpointFailed>().front();
  CHECK(failed.step == 1);
  CHECK(failed.rank == -1);
  const char* texts[] = {"no such directory", "the disk is gone", "index full"};
  CHECK(failed.text == texts[where]);
  CHECK(f.disk.recorded == Steps{2});  // and the next one is made
  f.require_confirmed({1, 2});
}

}  // namespace
}  // namespace train::actors
