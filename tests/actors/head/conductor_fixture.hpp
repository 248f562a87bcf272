#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <vector>

#include "actors/head/conductor_actor.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "tests/support/runs/actor_world.hpp"

namespace train::actors::testing {

/// Of this kind, that a rank was given.
inline std::vector<Command> commands(const test::Recorder& rank, engine::CommandKind kind) {
  std::vector<Command> found = rank.all<Command>();
  std::erase_if(found, [kind](const Command& each) { return each.kind != kind; });
  return found;
}

/// Commands received for this pass of the run.
inline std::vector<Command> commands(const test::Recorder& rank, const engine::PassPlan& pass) {
  std::vector<Command> found = commands(rank, engine::CommandKind::pass);
  std::erase_if(found, [&pass](const Command& each) { return each.pass != pass.index; });
  return found;
}

/// A conductor between recorders; the test plays the rank.
struct ConductorFixture {
  test::ActorWorld world;
  WaitTable waits;
  test::Recorder rank{world.system()};
  test::Recorder reporter{world.system()};
  test::Recorder waiter{world.system()};
  test::Recorder index{world.system()};
  ConductorActor conductor;
  std::uint64_t finished = 0;  // commands

  explicit ConductorFixture(const run::RunProgram::Options& program, const SaveDrain& drain = {})
      : conductor(world.keep(spawn_conductor(world.system(), waits, program, drain))) {
    tell(ConnectConductor{{rank.as<RankActor>()},
                          {{"reporter", reporter.as<RunListener>()}},
                          waiter.actor(),
                          index.as<IndexActor>()});
  }
  template <class Message>
  void tell(const Message& message) {
    caf::anon_send(conductor, message);
    world.run_actors();
  }
  void drain() {
    caf::send_as(reporter.actor(), conductor, ReportDrained{});
    world.run_actors();
  }
  void finish_step(std::int64_t step, double loss = 1.0) {
    const bool nonfinite = !(loss < std::numeric_limits<double>::infinity());
    tell(StepFinished{.step = step,
                      .loss = FloatBits(loss),
                      .grad_norm = FloatBits(1.0),
                      .lr = FloatBits(0.1),
                      .nonfinite = nonfinite,
                      .unit_grad_norms = {}});
    finish_command();
  }
  void finish_command() { tell(CommandFinished{finished++, 0}); }
  /// The save under way, by the newest grant, has ended well.
  void finish_save() {
    const std::int64_t step = index.all<WriteSnapshot>().back().step;
    tell(CheckpointWritten{step, "directory", 1, 1});
    tell(SaveFinished{step});
  }
  /// The rank stops, the saves are done, the reporter is; what the waiter hears.
  RunFinished end() {
    tell(RankStopped{0});
    for (std::size_t saved = 0; saved < index.count<WriteSnapshot>();) {
      CHECK(reporter.count<CloseReport>() == 0);  // as long as a save is under way
      saved = index.count<WriteSnapshot>();
      tell(SaveFinished{index.all<WriteSnapshot>().back().step});
    }
    CHECK(reporter.count<CloseReport>() == 1);
    CHECK(waiter.count<RunFinished>() == 0);  // first everything is written
    drain();
    REQUIRE(waiter.count<RunFinished>() == 1);
    return waiter.all<RunFinished>().front();
  }
};

}  // namespace train::actors::testing
