#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "base/check.hpp"
#include "base/exit_codes.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/runs/actor_fixture.hpp"
#include "tests/support/runs/require_same.hpp"

namespace train::test {
namespace {

using Steps = std::vector<std::int64_t>;

Steps evaluated(const TrainingRun& run) {
  Steps steps;
  for (const actors::EvaluationFinished& evaluation : run.evaluations) {
    steps.push_back(evaluation.step);
  }
  return steps;
}

TEST_CASE("a run through the actors is the plain loop, bit for bit", "[actors][EX-1][P1]") {
  const RunSetup setup;
  const PlainRun plain(setup);
  TrainingRun run(setup);
  run.start();
  run.run();
  CHECK(run.finished().exit_code == kExitFinished);
  CHECK(run.finished().step == 4);
  REQUIRE(run.steps.size() == 4);
  CHECK(std::ranges::is_sorted(run.steps, {}, &actors::StepFinished::trained_ns));
  CHECK(run.steps.front().trained_ns > 0);
  CHECK(run.steps.back().has_digest);
  CHECK(run.steps.back().weights_digest == plain.digests.back());
  CHECK(plain.digests.front() != plain.digests.back());
  CHECK(evaluated(run) == Steps{0, 2, 4});
  CHECK(run.saved == Steps{2, 4});
  CHECK(run.checkpoints.recorded == Steps{2, 4});
  require_same(run, plain);
}

TEST_CASE("any order of messages gives the same result and an end", "[actors][EX-1][P2]") {
  const RunSetup setup{.steps = 3, .manual_streams = GENERATE(false, true)};
  const PlainRun plain(setup);
  const std::uint64_t first = Catch::rngSeed();
  std::set<std::vector<std::string>> orders;
  for (std::uint64_t seed = first; seed < first + 120; ++seed) {
    INFO("schedule seed " << seed);
    Random random(seed);
    TrainingRun run(setup);
    std::vector<std::string> order;
    run.world().observe([&order](std::string_view actor, const caf::type_erased_tuple&) {
      order.emplace_back(actor);
    });
    run.start();
    run.run(random);
    REQUIRE(run.finished().exit_code == kExitFinished);
    REQUIRE(run.steps.size() == 3);
    REQUIRE(evaluated(run) == Steps{0, 2, 3});
    REQUIRE(run.checkpoints.written.contains(3));
    REQUIRE(run.saved.size() + run.skipped.size() == 2);
    require_same(run, plain);
    orders.insert(order);
  }
  CHECK(orders.size() > 100);  // the seeds did choose
}

TEST_CASE("the same seed gives the same schedule", "[actors]") {
  const auto trace = [](std::uint64_t seed) {
    Random random(seed);
    TrainingRun run({.steps = 2, .manual_streams = true});
    std::vector<std::string> order;
    run.world().observe([&order](std::string_view actor, const caf::type_erased_tuple&) {
      order.emplace_back(actor);
    });
    run.start();
    run.run(random);
    return order;
  };
  CHECK(trace(11) == trace(11));
  CHECK(trace(11) != trace(12));
}

TEST_CASE("one lane, one slot and no evaluation also work", "[actors][EX-4]") {
  const RunSetup setup{.eval_interval = 0, .lanes = 1, .eval_lanes = 1, .lane_slots = 1};
  TrainingRun run(setup);
  run.start();
  run.run();
  CHECK(run.finished().exit_code == kExitFinished);
  CHECK(run.evaluations.empty());
  require_same(run, PlainRun(setup));
}

/// A run on threads, with a real scheduler; what it says at its end.
actors::RunFinished run_on_threads(const RunSetup& setup,
                                   const std::vector<actors::RankContext>& contexts,
                                   const std::filesystem::path& directory,
                                   MemoryCheckpoints& checkpoints) {
  auto report = run::RunReport::open(
      {.directory = directory, .total_steps = setup.steps, .tensorboard = false});
  REQUIRE(report.ok());
  std::vector<actors::RankParts> ranks;
  for (const actors::RankContext& context : contexts) {
    ranks.push_back({.context = context, .shards = checkpoints.shard_work(context->rank)});
  }
  const auto waits = std::make_shared<actors::WaitTable>();
  actors::RunFinished end;
  caf::actor_system_config config;
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", std::size_t{1});
  caf::actor_system system(config);
  caf::scoped_actor self(system);
  actors::TrainingActors running = actors::start_training(
      system, ranks,
      {.report = std::move(report).value(),
       .disk = kernels::make_thread_stream("disk", 1),
       .index = checkpoints.index_work(),
       .program = {.total_steps = setup.steps, .eval_interval = 2, .checkpoint_interval = 1},
       .waits = waits},
      caf::actor_cast<caf::actor>(self));
  self->receive([&end](const actors::RunFinished& finished) { end = finished; },
                caf::after(hang_limit) >> [&end] { end.exit_code = -1; });
  actors::stop_training(running);
  return end;
}

TEST_CASE("with threads for streams and a real scheduler it is the same run",
          "[actors][EX-1][P1][world]") {
  RunSetup setup{.steps = 6, .lanes = 5};
  setup.parallel =
      GENERATE(split_over(1, "none"), split_over(2, "gradient"), split_over(3, "full"));
  INFO(setup.parallel.strategy << " on " << setup.parallel.ranks << " ranks");
  const PlainRun plain(setup);
  const TempDirectory directory;
  write_tokens(directory.path(), setup);
  const auto ranks = make_ranks(setup, directory.path(), actors::StreamKind::threads, 2);
  MemoryCheckpoints checkpoints;  // written by every rank's disk stream
  const actors::RunFinished end = run_on_threads(setup, ranks, directory.path(), checkpoints);
  CHECK(end.exit_code == kExitFinished);
  CHECK(end.step == setup.steps);
  std::uint64_t digest = 0;
  for (const actors::RankContext& rank : ranks) {
    digest += rank->engine->state().digest();
  }
  CHECK(digest == plain.digests.back());
  CHECK(checkpoints.written.contains(setup.steps));
  for (const auto& [step, written] : checkpoints.written) {
    CHECK(written == plain.digests.at(static_cast<std::size_t>(step)));
  }
}

TEST_CASE("the actors of a rank are not spread over threads", "[actors][P1][world]") {
  caf::actor_system_config config;
  config.set("scheduler.max-threads", std::size_t{2});
  caf::actor_system system(config);
  const TempDirectory directory;
  const RunSetup setup;
  write_tokens(directory.path(), setup);
  const auto ranks = make_ranks(setup, directory.path(), actors::StreamKind::inline_, 1);
  CHECK_THROWS_AS(
      actors::start_rank(system, {.context = ranks.front(), .shards = {}, .reporting = {}}, {}),
      CheckFailed);
}

TEST_CASE("a stop is served wherever it comes, and what was done is saved", "[actors][P3]") {
  const RunSetup setup{.steps = 4, .manual_streams = GENERATE(false, true)};
  const PlainRun plain(setup);
  int stopped = 0;
  for (std::uint64_t after = 0; after < 1200; after += 23) {
    INFO("stop requested after " << after << " events");
    Random random(after);
    TrainingRun run(setup);
    run.start();
    for (std::uint64_t event = 0; event < after && run.step(random); ++event) {
    }
    run.request_stop();
    run.request_stop();  // batch systems like to send it more than once
    run.run(random);
    const actors::RunFinished end = run.finished();
    const bool all_done = end.step == setup.steps && evaluated(run).back() == setup.steps;
    REQUIRE(end.exit_code == (all_done ? kExitFinished : kExitStopped));
    REQUIRE(static_cast<std::int64_t>(run.steps.size()) == end.step);
    REQUIRE((end.step == 0 || run.checkpoints.written.contains(end.step)));
    require_same(run, plain);
    stopped += all_done ? 0 : 1;
  }
  CHECK(stopped > 5);
}

}  // namespace
}  // namespace train::test
