#include "actors/head/report/reporter_actor.hpp"

#include <catch2/catch.hpp>
#include <csignal>

#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/runs/actor_world.hpp"

namespace train::actors {
namespace {

TEST_CASE("reporter: the first failure goes to the conductor, and no other", "[actors][reporter]") {
  const test::TempDirectory directory;
  test::ActorWorld world;
  test::Recorder conductor(world.system());
  auto report = run::RunReport::open({.directory = directory.path(), .tensorboard = false});
  REQUIRE(report.ok());
  const ReporterActor reporter =
      world.keep(spawn_reporter(world.system(), std::move(report).value(), StreamKind::inline_));
  caf::anon_send(reporter, ConnectReporter{conductor.as<ConductorActor>()});
  caf::anon_send(reporter, ReportFailed{"the disk is full"});
  caf::anon_send(reporter, ReportFailed{"the disk is still full"});
  world.run_actors();
  const auto heard = conductor.all<ReportFailed>();
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].text == "the disk is full");
}

TEST_CASE("reporter: a stop is an event of the run", "[actors][reporter]") {
  const test::TempDirectory directory;
  test::ActorWorld world;
  auto report = run::RunReport::open({.directory = directory.path(), .tensorboard = false});
  REQUIRE(report.ok());
  const ReporterActor reporter =
      world.keep(spawn_reporter(world.system(), std::move(report).value(), StreamKind::inline_));
  caf::anon_send(reporter, StopRequested{SIGTERM});
  world.run_actors();
  CHECK_THAT(test::read_bytes(run::events_path(directory.path())),
             Catch::EndsWith("\"event\":\"stop_requested\",\"text\":\"SIGTERM\"}\n"));
}

}  // namespace
}  // namespace train::actors
