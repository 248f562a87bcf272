#include "actors/head/conductor_actor.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <limits>

#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "base/exit_codes.hpp"
#include "run/recovery/head_table.hpp"
#include "run/recovery/verdict.hpp"
#include "tests/actors/head/conductor_fixture.hpp"

namespace train::actors {
namespace {

using engine::CommandKind;
using testing::commands;
using testing::ConductorFixture;

TEST_CASE("the conductor keeps its window of commands ahead", "[actors][EX-4]") {
  ConductorFixture f({.total_steps = 5});
  CHECK(f.rank.size() == kCommandWindow);
  for (std::int64_t step = 1; step <= 3; ++step) {
    f.finish_step(step);
    CHECK(f.rank.size() == kCommandWindow + static_cast<std::size_t>(step));
  }
  const auto given = commands(f.rank, engine::kTrainStep);
  for (std::size_t i = 0; i < given.size(); ++i) {
    CHECK(given[i].sequence == i);
    CHECK(given[i].step == static_cast<std::int64_t>(i));
  }
}

TEST_CASE("a run to the end stops the rank, closes the report, says so", "[actors][EX-1]") {
  ConductorFixture f({.total_steps = 1});
  CHECK(commands(f.rank, CommandKind::snapshot).size() == 1);
  f.finish_step(1);
  f.finish_command();
  CHECK(commands(f.rank, CommandKind::stop).size() == 1);
  const RunFinished end = f.end();
  CHECK(end.exit_code == kExitFinished);
  CHECK(end.step == 1);
  CHECK(f.reporter.count<StepFinished>() == 1);
  CHECK(f.waits.waiting().empty());
}

TEST_CASE("a signal during a step: the steps given out are finished and saved", "[actors][P3]") {
  ConductorFixture f({.total_steps = 100, .checkpoint_interval = 50});
  f.tell(StopRequested{SIGTERM});
  CHECK(f.rank.size() == 2);  // nothing new before the window has room
  f.finish_step(1);
  f.tell(StopRequested{SIGINT});  // a second one changes nothing
  CHECK(f.reporter.count<StopRequested>() == 1);
  f.finish_step(2);
  CHECK(commands(f.rank, engine::kTrainStep).size() == 2);
  REQUIRE(commands(f.rank, CommandKind::snapshot).size() == 1);
  CHECK(commands(f.rank, CommandKind::snapshot).front().step == 2);
  f.finish_command();
  CHECK(commands(f.rank, CommandKind::stop).size() == 1);
  const RunFinished end = f.end();
  CHECK(end.exit_code == kExitStopped);
  CHECK(end.step == 2);
  CHECK_THAT(end.text, Catch::Contains("signal 15") && Catch::Contains("run it again"));
}

TEST_CASE("a signal before the first step is over saves that step", "[actors][P3]") {
  ConductorFixture f({.total_steps = 100, .eval_interval = 10, .checkpoint_interval = 10});
  f.tell(StopRequested{SIGTERM});
  f.tell(StopRequested{SIGTERM});
  f.finish_command();  // the evaluation
  f.finish_step(1);
  REQUIRE(commands(f.rank, CommandKind::snapshot).size() == 1);
  f.finish_command();
  const RunFinished end = f.end();
  CHECK(end.exit_code == kExitStopped);
  CHECK_THAT(end.text, Catch::Contains("after step 1, saved"));
}

TEST_CASE("a signal during an evaluation", "[actors][P3]") {
  ConductorFixture f({.total_steps = 100, .eval_interval = 10});
  CHECK(commands(f.rank, engine::kEvaluation).size() == 1);
  f.tell(StopRequested{SIGTERM});
  f.finish_command();
  f.finish_step(1);
  CHECK(commands(f.rank, engine::kTrainStep).size() == 1);
  CHECK(commands(f.rank, CommandKind::snapshot).size() == 1);
  f.finish_command();
  CHECK(f.end().exit_code == kExitStopped);
}

TEST_CASE("a signal during a snapshot saves the steps after it too", "[actors][P3]") {
  ConductorFixture f({.total_steps = 100, .checkpoint_interval = 1});
  f.finish_step(1);  // the snapshot of step 1 is under way, the next step is given out
  REQUIRE(commands(f.rank, CommandKind::snapshot).size() == 1);
  REQUIRE(commands(f.rank, engine::kTrainStep).size() == 2);
  f.tell(StopRequested{SIGTERM});
  f.finish_command();
  f.finish_step(2);
  CHECK(commands(f.rank, engine::kTrainStep).size() == 2);
  CHECK(commands(f.rank, CommandKind::snapshot).size() == 2);
  f.finish_command();
  CHECK(f.end().exit_code == kExitStopped);
}

TEST_CASE("a signal after the last step is a run that finished", "[actors]") {
  ConductorFixture f({.total_steps = 1});
  f.finish_step(1);
  f.tell(StopRequested{SIGTERM});
  f.finish_command();
  CHECK(f.end().exit_code == kExitFinished);
}

TEST_CASE("a step that is not finite: find the origin, save nothing more", "[actors]") {
  const bool two_passes = GENERATE(false, true);
  const engine::PassList passes(std::vector<engine::Pass>(two_passes ? 2 : 1));
  ConductorFixture f({.total_steps = 100, .passes = passes, .checkpoint_interval = 3});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto finish_first_pass = [&] { two_passes ? f.finish_command() : void(); };
  finish_first_pass();
  f.finish_step(1);
  finish_first_pass();
  f.finish_step(2, nan);
  two_passes ? f.finish_command() : f.finish_step(3, nan);  // was under way
  REQUIRE(commands(f.rank, passes.search().back()).size() == 1);
  CHECK(commands(f.rank, passes.search().back()).front().step == 1);
  CHECK(commands(f.rank, passes.search().front()).size() == 1);
  CHECK(commands(f.rank, CommandKind::snapshot).size() == 0);
  f.tell(NonfiniteFound{2, 0, false, "in no layer"});
  finish_first_pass();
  f.tell(NonfiniteFound{2, 0, true, "in block 1 (backward), lane 0"});
  f.tell(NonfiniteFound{2, 0, true, "in block 2"});  // the first that is found counts
  f.finish_command();
  const RunFinished end = f.end();
  CHECK(end.exit_code == kExitFailure);
  CHECK(end.step == 1);
  CHECK_THAT(end.text, Catch::Contains("step 2") && Catch::Contains("block 1 (backward), lane 0"));
  CHECK(f.reporter.count<StepFinished>() == 1);
}

TEST_CASE("a failed save ends in exit code 1 unless a later one succeeded", "[actors]") {
  const bool later = GENERATE(false, true);
  ConductorFixture f({.total_steps = 1});
  f.tell(CheckpointFailed{1, -1, "disk full"});
  if (later) {
    f.tell(CheckpointWritten{1, "directory", 1, 1});
  }
  f.finish_step(1);
  f.finish_command();
  const RunFinished end = f.end();
  CHECK(end.exit_code == (later ? kExitFinished : kExitFailure));
  CHECK((end.text.find("disk full") == std::string::npos) == later);
}

TEST_CASE("saves that take long: the newest waits, all are told what it replaces",
          "[actors][P3][CK-8]") {
  ConductorFixture f({.total_steps = 4, .checkpoint_interval = 1});
  for (std::int64_t step = 1; step <= 4; ++step) {
    f.finish_step(step);
    f.finish_command();
  }
  const auto taken = commands(f.rank, CommandKind::snapshot);
  REQUIRE(taken.size() == 4);
  const std::int64_t replaces[] = {-1, -1, 2, 3};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(taken[i].write_now == (i == 0));
    CHECK(taken[i].replaces == replaces[i]);
  }
  CHECK(f.reporter.count<CheckpointSkipped>() == 2);
  CHECK(f.index.count<CheckpointSkipped>() == 2);
  CHECK(f.rank.count<WriteSnapshot>() == 0);
  f.tell(RankStopped{0});
  f.finish_save();
  REQUIRE(f.rank.count<WriteSnapshot>() == 1);
  CHECK(f.rank.all<WriteSnapshot>().front().step == 4);
  CHECK(f.reporter.count<CloseReport>() == 0);
  f.finish_save();
  CHECK(f.reporter.count<CloseReport>() == 1);
  CHECK(f.waits.waiting().empty());
}

TEST_CASE("steps and evaluations reach the index, but for those that are not finite", "[actors]") {
  ConductorFixture f({.total_steps = 3, .eval_interval = 3});
  f.tell(EvaluationFinished{.step = 0, .rank = 0, .cross_entropy = FloatBits(2.0), .accuracy = {}});
  f.finish_command();
  f.finish_step(1);
  f.finish_step(2, std::numeric_limits<double>::quiet_NaN());
  CHECK(f.index.count<EvaluationFinished>() == 1);
  REQUIRE(f.index.count<StepFinished>() == 1);
  CHECK(f.index.all<StepFinished>().front().step == 1);
}

TEST_CASE("a snapshot that is not finite is not waited for", "[actors]") {
  ConductorFixture f({.total_steps = 100, .checkpoint_interval = 1});
  f.finish_step(1);
  REQUIRE(f.index.all<WriteSnapshot>().back().step == 1);
  f.finish_command();
  f.finish_save();
  // The snapshot of step 2 is given out, and granted, before its loss is known.
  REQUIRE(f.index.all<WriteSnapshot>().back().step == 2);
  f.finish_step(2, std::numeric_limits<double>::quiet_NaN());
  f.finish_command();  // the snapshot
  f.finish_command();  // the search for the origin
  REQUIRE(commands(f.rank, CommandKind::stop).size() == 1);
  f.tell(RankStopped{0});
  CHECK(f.reporter.count<CloseReport>() == 1);
}

TEST_CASE("the end waits for the last checkpoint, but not for ever", "[actors][P3]") {
  ConductorFixture f({.total_steps = 2, .checkpoint_interval = 1},
                     {.time = std::chrono::seconds(7), .local_location = "/fast/run"});
  for (std::int64_t step = 1; step <= 2; ++step) {
    f.finish_step(step);
    f.finish_command();
  }
  const bool local = GENERATE(false, true);
  f.finish_save();
  if (local) {
    f.tell(CheckpointLocal{2});
  }
  f.tell(RankStopped{0});
  f.tell(StopRequested{SIGTERM});
  f.world.advance(std::chrono::seconds(6));
  f.world.run_actors();
  CHECK(f.reporter.count<CloseReport>() == 0);
  REQUIRE(f.waits.waiting().size() == 1);
  CHECK(std::string(f.waits.waiting().front().what) == "the last checkpoint to be published");
  const bool in_time = GENERATE(false, true);
  if (in_time) {
    f.finish_save();
  }
  f.world.advance(std::chrono::seconds(2));
  f.world.run_actors();
  REQUIRE(f.reporter.count<CloseReport>() == 1);
  f.drain();
  REQUIRE(f.waiter.count<RunFinished>() == 1);
  const RunFinished end = f.waiter.all<RunFinished>().front();
  INFO(end.text);
  if (in_time) {
    CHECK(end.exit_code == kExitFinished);
    return;
  }
  CHECK(end.exit_code == kExitFailure);
  CHECK_THAT(end.text, Catch::Contains("checkpoint of step 2 ") &&
                           Catch::Contains("checkpoint.drain_s = 7") &&
                           Catch::Contains("the newest published one is of step 1"));
  CHECK_THAT(end.text, Catch::Contains(local ? "is complete in /fast/run" : "is lost"));
}

TEST_CASE("a report that could not be written ends in exit code 1", "[actors]") {
  ConductorFixture f({.total_steps = 1});
  f.tell(ReportFailed{"metrics.jsonl: disk full"});
  f.finish_step(1);
  f.finish_command();
  const RunFinished end = f.end();
  CHECK(end.exit_code == kExitFailure);
  CHECK_THAT(end.text, Catch::Contains("metrics.jsonl"));
}

TEST_CASE("a report that could not be written does not end the chain of a run that is saved",
          "[actors]") {
  ConductorFixture f({.total_steps = 100, .checkpoint_interval = 50});
  f.tell(ReportFailed{"metrics.jsonl: disk full"});
  f.tell(StopRequested{SIGUSR1});
  f.finish_step(1);
  f.finish_step(2);
  f.finish_command();
  CHECK(f.end().exit_code == kExitStopped);
}

TEST_CASE("a failed rank ends the run with its text and its code", "[actors]") {
  ConductorFixture f({.total_steps = 5});
  f.tell(RankFailed{0, "train.bin: token 99 at position 3", kExitUserError, false});
  f.tell(RankFailed{0, "something that followed", kExitFailure, false});
  CHECK(f.reporter.count<CloseReport>() == 1);
  f.drain();
  REQUIRE(f.waiter.count<RunFinished>() == 1);
  const RunFinished end = f.waiter.all<RunFinished>().front();
  CHECK(end.exit_code == kExitUserError);
  CHECK_THAT(end.text, Catch::Contains("rank 0") && Catch::Contains("position 3"));
  f.tell(StopRequested{SIGTERM});
  CHECK(f.waiter.count<RunFinished>() == 1);
}

/// A conductor of two ranks.
struct TwoRanks {
  test::ActorWorld world;
  WaitTable waits;
  test::Recorder rank[2] = {test::Recorder(world.system()), test::Recorder(world.system())};
  test::Recorder reporter{world.system()};
  test::Recorder waiter{world.system()};
  ConductorActor conductor;

  explicit TwoRanks(const run::RunProgram::Options& program)
      : conductor(world.keep(spawn_conductor(world.system(), waits, program))) {
    tell(ConnectConductor{{rank[0].as<RankActor>(), rank[1].as<RankActor>()},
                          {{"reporter", reporter.as<RunListener>()}},
                          waiter.actor(),
                          {}});
  }
  template <class Message>
  void tell(const Message& message) {
    caf::anon_send(conductor, message);
    world.run_actors();
  }
  void finish_step(std::int32_t number, std::int64_t step, double loss = 1.0) {
    StepFinished event;
    event.step = step;
    event.rank = number;
    event.loss = FloatBits(loss);
    tell(event);
    tell(CommandFinished{static_cast<std::uint64_t>(step - 1), number});
  }
  void wait() {
    world.advance(run::kHearsayTime);
    world.run_actors();
  }
  RunFinished end() {
    caf::send_as(reporter.actor(), conductor, ReportDrained{});
    world.run_actors();
    REQUIRE(waiter.count<RunFinished>() == 1);
    return waiter.all<RunFinished>().front();
  }
};

TEST_CASE("a command is finished when every rank has finished it", "[actors][EX-1][EX-4]") {
  TwoRanks f({.total_steps = 5});
  f.finish_step(0, 1);
  f.finish_step(0, 2);
  CHECK(commands(f.rank[0], engine::kTrainStep).size() ==
        kCommandWindow);  // the slow one sets the pace
  CHECK(f.reporter.count<StepFinished>() == 0);
  f.finish_step(1, 1);
  CHECK(commands(f.rank[0], engine::kTrainStep).size() == kCommandWindow + 1);
  CHECK(commands(f.rank[1], engine::kTrainStep).size() == kCommandWindow + 1);
  CHECK(f.reporter.count<StepFinished>() == 1);  // once for all
}

TEST_CASE("texts go on when every rank has sent its tokens, and are reported once",
          "[actors][samples][EX-1]") {
  TwoRanks f({.total_steps = 1,
              .samples_interval = 1,
              .sampling = {.prompts = {{1}, {2}}, .tokens = 2, .vocab = 9, .context = 8}});
  const auto samples = [&f](int rank) { return commands(f.rank[rank], engine::kSampling); };
  const auto send = [&f](std::int32_t rank, std::int32_t token) {
    f.tell(TokensSampled{
        .step = 0, .rank = rank, .first_text = rank, .tokens = {token}, .elapsed_ns = 2});
  };
  REQUIRE(samples(0).size() == 1);
  CHECK(samples(1).back().text_tokens == std::vector<std::int32_t>{1, 2});
  send(1, 4);
  CHECK(samples(0).size() == 1);
  send(0, 3);
  REQUIRE(samples(0).size() == 2);
  CHECK(samples(1).back().text_tokens == std::vector<std::int32_t>{1, 3, 2, 4});
  CHECK(commands(f.rank[0], engine::kTrainStep).empty());
  CHECK(f.reporter.count<TextsSampled>() == 0);
  send(0, 5);
  send(1, 6);
  REQUIRE(f.reporter.count<TextsSampled>() == 1);
  const TextsSampled texts = f.reporter.all<TextsSampled>().front();
  CHECK(texts.lengths == std::vector<std::int64_t>{2, 2});
  CHECK(texts.tokens == std::vector<std::int32_t>{3, 5, 4, 6});
  CHECK(texts.elapsed_ns == 4);
  for (std::uint64_t command = 0; command < 2; ++command) {
    f.tell(CommandFinished{command, 0});
    f.tell(CommandFinished{command, 1});
  }
  CHECK(commands(f.rank[0], engine::kTrainStep).size() == 1);
}

TEST_CASE("the run ends when every rank has stopped", "[actors][EX-1]") {
  TwoRanks f({.total_steps = 0});
  CHECK(commands(f.rank[0], CommandKind::stop).size() == 1);
  CHECK(commands(f.rank[1], CommandKind::stop).size() == 1);
  f.tell(RankStopped{1});
  CHECK(f.reporter.count<CloseReport>() == 0);
  f.tell(RankStopped{0});
  CHECK(f.reporter.count<CloseReport>() == 1);
  CHECK(f.end().exit_code == kExitFinished);
}

TEST_CASE("ranks that differ by a bit end the run, which names both", "[actors][P1]") {
  TwoRanks f({.total_steps = 5});
  f.finish_step(1, 1, 2.5);
  f.finish_step(0, 1, 2.25);
  const RunFinished end = f.end();
  CHECK(end.exit_code == kExitFailure);
  CHECK_THAT(end.text, Catch::Contains("step 1") && Catch::Contains("of rank 1 is 2.5 ") &&
                           Catch::Contains("of rank 0 2.25 "));
}

TEST_CASE("a rank that lost another one is not named when the cause follows", "[actors]") {
  TwoRanks f({.total_steps = 5});
  f.tell(RankFailed{0, "gather of block 1: rank 1 has closed its transport", kExitFailure, true});
  CHECK(f.reporter.count<CloseReport>() == 0);  // the cause may be on its way
  f.tell(RankFailed{1, "block 1, step 2: out of memory", kExitFailure, false});
  f.wait();
  CHECK(f.end().text == "rank 1 failed: block 1, step 2: out of memory");
}

TEST_CASE("a rank that lost another one is named when no cause comes", "[actors]") {
  TwoRanks f({.total_steps = 5});
  f.tell(RankFailed{0, "gather of block 1: the cable is cut", kExitFailure, true});
  f.tell(RankFailed{1, "gather of block 1: rank 0 takes part no more", kExitFailure, true});
  CHECK(f.reporter.count<CloseReport>() == 0);
  f.wait();
  CHECK(f.reporter.count<CloseReport>() == 1);
  const RunFinished end = f.end();
  CHECK(end.exit_code == kExitFailure);
  CHECK(end.text == "rank 0 failed: gather of block 1: the cable is cut");
}

TEST_CASE("nodes that are back end the generation as a loss does, and nobody is to blame",
          "[actors][P4]") {
  TwoRanks f({.total_steps = 5});
  f.tell(NodesReturned{});
  CHECK(f.reporter.count<CloseReport>() == 1);
  f.tell(RankFailed{1, "it was told to end", kExitFailure, true});
  const RunFinished end = f.end();
  CHECK(end.end == run::GenerationEnd::nodes_returned);
  CHECK(end.text.find("rank") == std::string::npos);
}

TEST_CASE("while nodes that are back end the generation, the ranks are given no more steps",
          "[actors][P4]") {
  ConductorFixture f({.total_steps = 100});
  const std::size_t given = f.rank.count<Command>();
  f.tell(NodesReturned{});
  for (std::size_t command = 0; command < given; ++command) {
    f.finish_step(static_cast<std::int64_t>(command) + 1);
  }
  CHECK(f.rank.count<Command>() == given);
}

TEST_CASE("nodes that are back do not end a run that stops and saves", "[actors][P3][P4]") {
  TwoRanks f({.total_steps = 5});
  f.tell(StopRequested{SIGTERM});
  f.tell(NodesReturned{});
  CHECK(f.reporter.count<CloseReport>() == 0);
}

TEST_CASE("a rank that was lost before nodes came back is the cause of the end", "[actors][P4]") {
  TwoRanks f({.total_steps = 5});
  f.tell(RankFailed{0, "gather of block 1: the cable is cut", kExitFailure, true});
  f.tell(NodesReturned{});
  f.wait();
  const RunFinished end = f.end();
  CHECK(end.end == run::GenerationEnd::rank_lost);
  CHECK(end.text == "rank 0 failed: gather of block 1: the cable is cut");
}

TEST_CASE("a lost launcher ends the generation, and is named as the table has it", "[actors][P4]") {
  TwoRanks f({.total_steps = 5});
  f.tell(LauncherLost{.node = 2});
  f.tell(RankFailed{1, "its process is gone", kExitFailure, true, true});
  const RunFinished end = f.end();
  CHECK(end.end == run::GenerationEnd::rank_lost);
  const run::HeadStep step = decide(run::HeadState::training, run::HeadEvent::launcher_lost, {});
  CHECK(end.text == run::fill_in(step.line, {.node = 2}));
  CHECK(end.exit_code == run::exit_code_of(step.exit, kExitFinished));
}

TEST_CASE("the end of a phase is one of its ranks, unless one of them fails as they end",
          "[actors][P4]") {
  ConductorFixture f({.total_steps = 5, .phase_end = 1, .saves = false});
  f.finish_step(1);
  if (GENERATE(false, true)) {
    f.tell(RankFailed{0, "out of memory", kExitFailure, false});
    CHECK(f.end().end == run::GenerationEnd::run_over);
    return;
  }
  const RunFinished end = f.end();
  CHECK(end.end == run::GenerationEnd::phase_over);
  CHECK(end.exit_code == kExitStopped);
  CHECK(end.text == "the phase is over at step 1, saved");
}

}  // namespace
}  // namespace train::actors
