// What a line in a registry of actors brings about: this file adds an actor to every rank, and one
// to the run, as a file of the product would.
#include <caf/all.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "actors/head/run_registry.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/watch_messages.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/rank_registry.hpp"
#include "base/exit_codes.hpp"
#include "tests/support/runs/actor_fixture.hpp"
#include "tests/support/runs/require_same.hpp"

namespace train::actors {
namespace {

struct OrderState {
  static inline const char* name = "order";
  std::uint64_t next = 0;
};

/// Sees to it that the commands of its rank come in their order.
CommandFollower::behavior_type order(CommandFollower::stateful_pointer<OrderState> self) {
  report_exceptions(self, "order", [] { return std::int64_t{-1}; });
  return {[self](const Command& command) {
    TRAIN_CHECK(command.sequence == self->state.next, "command {} is not the next",
                command.sequence);
    ++self->state.next;
  }};
}

void add_order(RankAssembly& rank) {
  rank.follow_commands(rank.add("order of commands", rank.system().spawn(order)));
}

struct ListenerState {
  static inline const char* name = "listener";
  std::int64_t steps = 0;
};

/// Hears a run; `answers`: when it is over, too.
template <bool answers>
RunListener::behavior_type listener(RunListener::stateful_pointer<ListenerState> self) {
  return {[self](const StepFinished&) { ++self->state.steps; },
          [](const EvaluationFinished&) {},
          [](const TextsSampled&) {},
          [](const CheckpointWritten&) {},
          [](const CheckpointFailed&) {},
          [](const CheckpointSkipped&) {},
          [](const StopRequested&) {},
          [self](const CloseReport&) {
            if (answers) {
              self->send(caf::actor_cast<ConductorActor>(self->current_sender()), ReportDrained{});
            }
          }};
}

template <bool answers>
void add_listener(RunAssembly& run) {
  run.listen("listener", run.add("listener", run.system().spawn(listener<answers>)));
}

TEST_CASE("registry: an actor of a line gets every command of its rank, and changes nothing",
          "[actors][EX-1]") {
  test::RunSetup setup;
  setup.parallel = test::split_over(2, "full");
  const test::PlainRun plain(setup);
  test::TrainingRun run(setup);
  run.rank_actors.push_back(add_order);
  std::map<std::string, std::size_t, std::less<>> commands;
  run.world().observe([&](std::string_view actor, const caf::type_erased_tuple& message) {
    commands[std::string(actor)] += message.match_elements<Command>() ? 1 : 0;
  });
  run.start();
  run.run();
  CHECK(run.finished().exit_code == kExitFinished);
  CHECK(commands["order"] == commands["rank"]);
  CHECK(commands["order"] > 2 * static_cast<std::size_t>(setup.steps));
  test::require_same(run, plain);
}

TEST_CASE("registry: the rank fails by the name of the line when its actor ends", "[actors]") {
  const std::size_t rank = GENERATE(0U, 1U);
  test::RunSetup setup;
  setup.parallel = test::split_over(2, "full");
  test::TrainingRun run(setup);
  run.rank_actors.push_back(add_order);
  run.start();
  test::Random random(1);
  for (int event = 0; event < 60; ++event) {
    REQUIRE(run.step(random));
  }
  const caf::actor part = run.part_of(rank, "order");
  if (GENERATE(false, true)) {
    test::kill_actor(part, "order: struck down");
  } else {
    caf::anon_send_exit(part, caf::exit_reason::user_shutdown);
  }
  run.run();
  CHECK(run.finished().exit_code == kExitFailure);
  CHECK_THAT(run.finished().text, Catch::StartsWith("rank " + std::to_string(rank) + " failed: "));
  CHECK_THAT(run.finished().text, Catch::Contains("order of commands ended unasked") ||
                                      Catch::Contains("order: struck down"));
}

TEST_CASE("registry: the watchdog counts the messages that wait for the line's actor",
          "[actors][watchdog]") {
  test::TrainingRun run({.eval_interval = 0, .manual_streams = true});
  run.rank_actors.push_back(add_order);
  std::vector<RankObserved> observed;
  run.world().observe([&](std::string_view, const caf::type_erased_tuple& message) {
    if (message.match_elements<RankObserved>()) {
      observed.push_back(message.get_as<RankObserved>(0));
    }
  });
  run.start();
  const auto run_others = [&] {  // until only this actor has something to do
    const auto& jobs = run.world().scheduler().jobs;
    for (std::size_t index = 0; index < jobs.size();) {
      const auto* actor = dynamic_cast<const caf::local_actor*>(jobs[index]);
      if (actor != nullptr && std::string_view(actor->name()) == "order") {
        ++index;
      } else {
        run.world().run_one(index);
        index = 0;
      }
    }
  };
  run_others();
  run.world().advance(kWatchPeriod);
  run_others();
  REQUIRE_FALSE(observed.empty());
  const auto& queues = observed.back().mailboxes;
  REQUIRE(queues.size() == 1);
  CHECK(queues.front().what == "order of commands");
  CHECK(queues.front().length == 1);  // the command that has begun
}

TEST_CASE("registry: the line's actor is stopped with the others", "[actors]") {
  bool stopped = false;
  {
    test::TrainingRun run({});
    run.rank_actors.push_back(add_order);
    run.start();
    run.run();
    REQUIRE(run.finished().exit_code == kExitFinished);
    run.world().observe([&](std::string_view actor, const caf::type_erased_tuple& message) {
      stopped = stopped || (actor == "order" && message.match_elements<caf::exit_msg>());
    });
    run.stop();
    run.run();
  }
  CHECK(stopped);
}

TEST_CASE("registry: an actor of the run hears it all, and the end waits for it", "[actors]") {
  const bool answers = GENERATE(true, false);
  test::TrainingRun run({});
  run.run_actors.push_back(answers ? add_listener<true> : add_listener<false>);
  std::map<std::string, std::size_t, std::less<>> steps;
  run.world().observe([&](std::string_view actor, const caf::type_erased_tuple& message) {
    steps[std::string(actor)] += message.match_elements<StepFinished>() ? 1 : 0;
  });
  run.start();
  run.run();
  CHECK(steps["listener"] == run.steps.size());
  CHECK(steps["listener"] == steps["reporter"]);
  CHECK(run.over() == answers);
  if (!answers) {
    test::kill_actor(run.part("listener"), "the listener is gone");
    run.run();
    CHECK(run.finished().text == "the listener is gone");
  }
  CHECK(run.finished().exit_code == (answers ? kExitFinished : kExitFailure));
}

TEST_CASE("registry: without its listener a run trains on, and says so at its end", "[actors]") {
  test::TrainingRun run({});
  run.run_actors.push_back(add_listener<false>);
  run.start();
  caf::anon_send_exit(run.part("listener"), caf::exit_reason::user_shutdown);
  run.run();
  CHECK(run.steps.size() == 4);
  CHECK(run.finished().exit_code == kExitFailure);
  CHECK(run.finished().text == "the listener ended unasked");
}

}  // namespace
}  // namespace train::actors
