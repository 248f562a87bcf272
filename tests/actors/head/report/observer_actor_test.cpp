#include "actors/head/report/observer_actor.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "actors/messages/event_messages.hpp"
#include "actors/messages/watch_messages.hpp"
#include "actors/train/rank_actors.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/error_output_file.hpp"
#include "tests/support/harness/nanoseconds.hpp"
#include "tests/support/runs/actor_world.hpp"

namespace train::actors {
namespace {

/// An observer of two ranks, what it logs, and time that the test moves.
struct ObserverFixture {
  test::ActorWorld world;
  test::TempDirectory directory;
  test::ErrorOutputFile capture{directory / "log"};
  std::shared_ptr<WaitTable> waits = std::make_shared<WaitTable>();
  WaitTable::Credits commands = waits->add_credits("commands", 2);
  std::shared_ptr<run::StatusFile> status = std::make_shared<run::StatusFile>(
      directory.path(), run::StatusBase{.run = "a", .host = "h", .steps = 100});
  caf::scoped_actor conductor{world.system()};
  ObserverActor observer;

  explicit ObserverFixture(std::int64_t abort_after_ns = 0) {
    observer = world.keep(spawn_observer(
        world.system(),
        {.ranks = 2,
         .generation = 3,
         .abort_after_ns = abort_after_ns,
         .waits = waits,
         .status = status,
         .events = std::make_shared<run::EventLog>(directory.path()),
         .conductor = caf::actor_cast<ConductorActor>(caf::actor_cast<caf::actor>(conductor))},
        StreamKind::inline_));
    world.run_actors();
  }
  ObserverFixture(const ObserverFixture&) = delete;
  ObserverFixture& operator=(const ObserverFixture&) = delete;

  void hear(std::int32_t rank, std::vector<ObservedStream> streams = {}) {
    RankObserved observed{.rank = rank};
    observed.command = "TrainStep 4";
    observed.begun = 4;
    observed.streams = std::move(streams);
    caf::anon_send(observer, observed);
    world.run_actors();
  }
  /// A second in which all ranks but `silent` say that they are well; rank 1 with `streams`.
  void second(std::vector<ObservedStream> streams = {}, std::int32_t silent = -1) {
    for (const std::int32_t rank : {0, 1}) {
      if (rank != silent) {
        hear(rank, rank == 1 ? streams : std::vector<ObservedStream>());
      }
    }
    world.advance(std::chrono::seconds(1));
    world.run_actors();
  }
  [[nodiscard]] std::size_t count(const std::string& text) const {
    const std::string log = test::read_bytes(directory / "log");
    std::size_t found = 0;
    for (auto at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) {
      ++found;
    }
    return found;
  }
  /// What the conductor was told of failures since the last call.
  [[nodiscard]] std::vector<RankFailed> failures() {
    std::vector<RankFailed> heard;
    for (bool more = true; more;) {
      conductor->receive([&](const RankFailed& failed) { heard.push_back(failed); },
                         caf::after(std::chrono::seconds(0)) >> [&] { more = false; });
    }
    return heard;
  }
  [[nodiscard]] nlohmann::json written() const {
    return nlohmann::json::parse(test::read_bytes(directory / "status.json"));
  }
};

std::vector<ObservedStream> in_kernel(std::int64_t age_s) {
  return {{.name = "compute",
           .doing = "block 2 (forward) of step 5, lane 0",
           .kind = "block 2 (forward)",
           .age_ns = age_s * kSecond,
           .waits = false}};
}

TEST_CASE("observer: a stall is said once, and that it is over", "[actors][observer][P2]") {
  ObserverFixture run;
  run.commands.in_use(1);
  for (int age = 0; age < 9; ++age) {
    run.second(in_kernel(age));
  }
  CHECK(run.count("stalled the conductor waits for rank 1: in block 2 (forward)") == 1);
  CHECK(run.count("stall_over") == 0);
  CHECK(run.written().at("stall").at("text").get<std::string>().find("rank 1") !=
        std::string::npos);
  run.second(in_kernel(0));
  CHECK(run.count("stall_over went on after") == 1);
  CHECK_FALSE(run.written().contains("stall"));
  const std::string events = test::read_bytes(run.directory / "events.jsonl");
  CHECK(std::count(events.begin(), events.end(), '\n') == 2);
  CHECK(events.find(R"("event":"stalled","text":"the conductor waits for rank 1)") !=
        std::string::npos);
  CHECK(events.find(R"("event":"stall_over")") > events.find(R"("event":"stalled")"));
  CHECK(events.find(R"("seconds":)") != std::string::npos);
}

TEST_CASE("observer: a stall that lasts abort_after_s ends the run once, and is no lost rank",
          "[actors][observer][P2]") {
  ObserverFixture run(20 * kSecond);
  run.commands.in_use(1);
  int age = 0;
  for (; age < 18; ++age) {
    run.second(in_kernel(age));
  }
  CHECK(run.count("stalled the conductor waits for rank 1") == 1);
  CHECK(run.failures().empty());
  for (; age < 40; ++age) {
    run.second(in_kernel(age));
  }
  const auto failures = run.failures();
  REQUIRE(failures.size() == 1);
  CHECK(failures.front().rank == 1);
  CHECK(failures.front().exit_code == 1);
  CHECK_FALSE(failures.front().lost);
  CHECK_FALSE(failures.front().consequence);
  CHECK(failures.front().text.find("s (watchdog.abort_after_s): the conductor waits for rank 1") !=
        std::string::npos);
}

TEST_CASE("observer: no stall ends the run by default, nor shorter ones one after the other",
          "[actors][observer]") {
  const bool endless = GENERATE(true, false);
  ObserverFixture run(endless ? 0 : 20 * kSecond);
  run.commands.in_use(1);
  for (int second = 0; second < 200; ++second) {
    run.second(in_kernel(endless ? second : second % 10));
  }
  CHECK(run.count("stalled") > 0);
  CHECK(run.failures().empty());
}

TEST_CASE("observer: work that takes long by itself is no news until it takes twice as long",
          "[actors][observer]") {
  ObserverFixture run;
  run.commands.in_use(1);
  const auto work_for = [&run](int seconds) {
    for (int age = 0; age < seconds; ++age) {
      run.second(in_kernel(age));
    }
    run.second();
  };
  work_for(8);
  CHECK(run.count("stalled") == 1);
  work_for(8);
  CHECK(run.count("stalled") == 1);
  work_for(25);
  CHECK(run.count("stalled") == 2);
}

TEST_CASE("observer: a silent rank is a stall, before its loss or with it",
          "[actors][observer][P2]") {
  ObserverFixture run;
  run.commands.in_use(1);
  run.second();
  SECTION("by itself") {
    for (int second = 0; second < 8; ++second) {
      run.second({}, 1);
    }
    CHECK(run.count("stalled rank 1 has not been heard of for") == 1);
  }
  SECTION("with the loss") {
    for (int second = 0; second < 3; ++second) {
      run.second({}, 1);
    }
    CHECK(run.count("stalled") == 0);
    caf::anon_send(run.observer, RankLost{});
    run.world.run_actors();
    CHECK(run.count("stalled rank 1 has not been heard of for 4.0 s") == 1);
  }
  SECTION("not of one that was killed a moment ago") {
    caf::anon_send(run.observer, RankLost{});
    run.world.run_actors();
    CHECK(run.count("stalled") == 0);
  }
}

TEST_CASE("observer: its own pause is nobody's silence", "[actors][observer]") {
  ObserverFixture run;
  run.commands.in_use(1);
  run.second();
  run.world.advance(std::chrono::seconds(30));  // as when the launcher itself is stopped
  run.world.run_actors();
  CHECK(run.count("stalled") == 0);
  for (int second = 0; second < 8; ++second) {
    run.second();
  }
  CHECK(run.count("stalled") == 0);
}

TEST_CASE("observer: writes the status of what it has heard", "[actors][observer]") {
  ObserverFixture run;
  run.commands.in_use(2);
  run.second(in_kernel(1));
  const auto status = run.written();
  CHECK(status.at("run") == "a");
  CHECK(status.at("phase") == "running");
  CHECK(status.at("generation") == 3);
  CHECK(status.at("credits").at(0).at("in_use") == 2);
  REQUIRE(status.at("ranks").size() == 2);
  CHECK(status.at("ranks").at(0).at("command") == "TrainStep 4");
  CHECK(status.at("ranks").at(1).at("streams").at(0).at("doing") ==
        "block 2 (forward) of step 5, lane 0");
}

TEST_CASE("observer: a rank that does not exist is passed over", "[actors][observer]") {
  ObserverFixture run;
  run.hear(-1);
  run.hear(2);
  caf::anon_send(run.observer, RankLost{});
  run.second();
  CHECK(run.written().at("ranks").size() == 2);
}

TEST_CASE("observer: a status that cannot be written is said once", "[actors][observer]") {
  ObserverFixture run;
  run.second();
  std::filesystem::remove(run.directory / "status.json");
  std::filesystem::create_directory(run.directory / "status.json");
  std::filesystem::create_directory(run.directory / "status.json" / "in the way");
  run.second();
  run.second();
  CHECK(run.count("status_not_written") == 1);
}

}  // namespace
}  // namespace train::actors
