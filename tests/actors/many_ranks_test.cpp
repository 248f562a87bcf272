// Any number of ranks through the actors, in any order of messages and stream work, is the plain
// loop of one rank, bit for bit, and ends.

#include <catch2/catch.hpp>

#include "base/exit_codes.hpp"
#include "tests/support/harness/sanitized.hpp"
#include "tests/support/harness/soak.hpp"
#include "tests/support/runs/actor_fixture.hpp"
#include "tests/support/runs/require_same.hpp"

namespace train::test {
namespace {

constexpr const char* kStrategies[] = {"none", "optimizer", "gradient", "full", "hybrid"};

std::string name_of(const configs::ParallelSection& parallel) {
  return parallel.strategy + " on " + std::to_string(parallel.ranks) + " ranks in groups of " +
         std::to_string(parallel.group) + ", sync " + parallel.sync + ", reshard " +
         parallel.reshard + ", " + std::to_string(parallel.gather_credits) + " gather credits";
}

/// A run to its end, which has to be the plain loop's.
void require_run(const RunSetup& setup, const PlainRun& plain, std::uint64_t seed) {
  INFO(name_of(setup.parallel) << ", schedule seed " << seed);
  Random random(seed);
  TrainingRun run(setup);
  run.start();
  run.run(random);
  INFO(run.finished().text);
  REQUIRE(run.finished().exit_code == kExitFinished);
  REQUIRE(run.steps.size() == static_cast<std::size_t>(setup.steps));
  REQUIRE(run.failures.empty());
  for (const actors::StepFinished& step : run.steps) {
    REQUIRE(step.has_digest == (setup.digest_interval == 1 || step.step == setup.steps));
  }
  require_same(run, plain);
  REQUIRE(run.checkpoints.written.contains(setup.steps));
  REQUIRE(run.checkpoints.incoming.empty());
  REQUIRE(run.digest() == plain.digests.back());
  for (std::size_t rank = 0; rank < run.ranks(); ++rank) {
    REQUIRE(run.runtime(rank).waits.waiting().empty());
  }
}

/// Of every strategy at these numbers of ranks, with gradients sent after each lane or the last.
std::vector<configs::ParallelSection> splits(std::vector<std::int64_t> many_ranks) {
  std::vector<configs::ParallelSection> all;
  for (const std::int64_t ranks : many_ranks) {
    for (const char* strategy : kStrategies) {
      for (const char* sync : {"every_lane", "last_lane"}) {
        all.push_back(split_over(ranks, strategy, sync));
      }
    }
  }
  return all;
}

TEST_CASE("ranks, strategies and gating never show: digests of all weights at every step",
          "[actors][EX-1][P1]") {
  const RunSetup base{.steps = 3, .lanes = 8, .digest_interval = 1};
  const PlainRun plain(base);
  REQUIRE(plain.digests.front() != plain.digests.back());
  for (const auto& parallel : splits({1, 2, 3, 4, 5, 8})) {
    RunSetup setup = base;
    setup.parallel = parallel;
    require_run(setup, plain, 1);
  }
}

TEST_CASE("any order of the messages and the stream work of all ranks: the same bits, and an end",
          "[actors][.full][soak][EX-1][EX-2][EX-3][P1][P2]") {
  const RunSetup base{
      .steps = 2, .checkpoint_interval = 1, .manual_streams = true, .digest_interval = 1};
  const PlainRun plain(base);
  const std::vector<configs::ParallelSection> all = splits({2, 3, 4});
  const std::uint64_t first = Catch::rngSeed();
  const std::uint64_t schedules = 8 * all.size() * soak_factor();
  for (std::uint64_t seed = first; seed < first + schedules; ++seed) {
    RunSetup setup = base;
    setup.parallel = all[seed % all.size()];
    require_run(setup, plain, seed);
  }
}

TEST_CASE("credits, prefetch, resharding and wrapping: the same bits in any order, and an end",
          "[actors][soak][EX-1][EX-4][P1][P2][exhaustive]") {
  const RunSetup base{.steps = 2, .lanes = 5, .lane_slots = 2, .manual_streams = true};
  const PlainRun plain(base);
  const std::uint64_t first = Catch::rngSeed();
  const std::uint64_t schedules = 2 * soak_factor();
  std::uint64_t seed = first;
  int setups = 0;
  for (const char* reshard : {"after_forward", "never", "2"}) {
    for (const std::int64_t credits : {1, 2, 4}) {
      for (const std::int64_t prefetch : {0, 1, 3}) {
        for (const char* wrapping : {"per_block", "block *"}) {
          RunSetup setup = base;
          ++setups;
          setup.parallel = split_over(4, "full", setups / 2 % 2 == 0 ? "2" : "auto");
          setup.parallel.reshard = reshard;
          setup.parallel.gather_credits = credits;
          setup.parallel.prefetch_forward = setup.parallel.prefetch_backward = prefetch;
          setup.parallel.wrapping = {wrapping};
          if (setups % 3 == 0) {
            setup.parallel.strategy_by_unit = {"embedding = optimizer", "head = gradient"};
          }
          if (!engine::plan_of(engine_options(setup))) {
            continue;  // too few credits
          }
          for (std::uint64_t schedule = 0; schedule < schedules; ++schedule) {
            require_run(setup, plain, seed++);
          }
        }
      }
    }
  }
  CHECK(seed - first > 25 * schedules);
}

// "Rank 0 evaluates, the others have returned early": with weights that are split, rank 0 then
// waits in a gather for ever. Here an evaluation is a command, and a rank without a lane in it
// still takes part in its gathers.
TEST_CASE("rank 0 evaluates, others returned early: cannot happen",
          "[actors][EX-1][EX-2][P2][exhaustive]") {
  struct Case {
    std::int64_t ranks, eval_lanes;
  };
  const std::uint64_t first = Catch::rngSeed();
  for (const Case one : {Case{4, 3}, Case{3, 5}, Case{4, 1}, Case{2, 1}}) {
    // Before the first step, between all steps, and after the last one.
    const RunSetup base{.steps = 3,
                        .eval_interval = 1,
                        .checkpoint_interval = 0,
                        .eval_lanes = one.eval_lanes,
                        .manual_streams = true};
    const PlainRun plain(base);
    for (const char* strategy : {"full", "hybrid", "gradient"}) {
      for (std::uint64_t seed = first; seed < first + 8; ++seed) {
        INFO(one.ranks << " ranks, " << one.eval_lanes << " evaluation lanes, " << strategy
                       << ", schedule seed " << seed);
        RunSetup setup = base;
        setup.parallel = split_over(one.ranks, strategy);
        Random random(seed);
        TrainingRun run(setup);
        run.start();
        run.run(random);
        REQUIRE(run.finished().exit_code == kExitFinished);
        std::vector<std::int64_t> evaluated;
        for (const actors::EvaluationFinished& evaluation : run.evaluations) {
          evaluated.push_back(evaluation.step);
        }
        REQUIRE(evaluated == std::vector<std::int64_t>{0, 1, 2, 3});
        require_same(run, plain);
      }
    }
  }
}

// Some ranks have more questions than others, some none: they still take part in the gathers.
TEST_CASE("many ranks: questions fall unevenly, at an interval of their own, and nobody waits",
          "[actors][EX-1][EX-2][P1][P2]") {
  struct Case {
    std::int64_t ranks, questions;
  };
  const auto setup_of = [](std::int64_t questions) {
    return RunSetup{.steps = 3,
                    .eval_interval = 2,
                    .checkpoint_interval = 0,
                    .eval_lanes = 1,
                    .lane_slots = 2,
                    .manual_streams = true,
                    .choices_interval = 1,
                    .questions = questions};
  };
  const std::uint64_t first = Catch::rngSeed();
  for (const Case one : {Case{4, 1}, Case{3, 2}, Case{2, 4}}) {
    const RunSetup base = setup_of(one.questions);
    const PlainRun plain(base);
    const auto run_of = [&](const RunSetup& setup, std::uint64_t seed) {
      Random random(seed);
      TrainingRun run(setup);
      run.start();
      run.run(random);
      REQUIRE(run.finished().exit_code == kExitFinished);
      require_same(run, plain);
      REQUIRE(run.evaluations.size() == 3);  // After 0, 2 and 3 steps.
      return run.answers;
    };
    const auto alone = run_of(base, first);
    REQUIRE(alone.size() == 4);
    REQUIRE(alone.at(3).size() == static_cast<std::size_t>(4 * one.questions));
    REQUIRE(alone.at(0) != alone.at(3));
    for (const char* strategy : {"full", "hybrid", "gradient"}) {
      for (std::uint64_t seed = first; seed < first + (sanitized() ? 1 : 4); ++seed) {
        INFO(one.ranks << " ranks, " << one.questions << " questions, " << strategy
                       << ", schedule seed " << seed);
        RunSetup setup = base;
        setup.parallel = split_over(one.ranks, strategy);
        REQUIRE(run_of(setup, seed) == alone);
      }
    }
  }
}

// Three texts on four ranks: one has none. They end at different tokens.
TEST_CASE("many ranks: texts are sampled alike at any ranks, and nobody waits",
          "[actors][samples][EX-1][EX-2][P1][P2]") {
  const RunSetup base{.steps = 3,
                      .eval_interval = 2,
                      .checkpoint_interval = 2,
                      .eval_lanes = 1,
                      .lane_slots = 2,
                      .manual_streams = true,
                      .samples_interval = 2};
  const PlainRun plain(base);
  const auto run_of = [&](const RunSetup& setup, std::uint64_t seed) {
    Random random(seed);
    TrainingRun run(setup);
    run.start();
    run.run(random);
    REQUIRE(run.finished().exit_code == kExitFinished);
    require_same(run, plain);
    std::vector<std::vector<std::int64_t>> texts;
    for (const actors::TextsSampled& each : run.texts) {
      texts.push_back({each.step});
      texts.back().insert(texts.back().end(), each.lengths.begin(), each.lengths.end());
      texts.back().insert(texts.back().end(), each.tokens.begin(), each.tokens.end());
    }
    return texts;
  };
  const std::uint64_t first = Catch::rngSeed();
  const auto alone = run_of(base, first);
  REQUIRE(alone.size() == 3);  // After 0, 2 and 3 steps.
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const char* strategy : {"none", "full", "hybrid", "gradient"}) {
      for (std::uint64_t seed = first; seed < first + (sanitized() ? 1 : 3); ++seed) {
        INFO(ranks << " ranks, " << strategy << ", schedule seed " << seed);
        RunSetup setup = base;
        setup.parallel = split_over(ranks, strategy);
        REQUIRE(run_of(setup, seed) == alone);
      }
    }
  }
}

TEST_CASE("many ranks: the same seed gives the same schedule, another one another", "[actors]") {
  const auto trace = [](std::uint64_t seed) {
    Random random(seed);
    RunSetup setup{.steps = 2, .manual_streams = true};
    setup.parallel = split_over(3, "full");
    TrainingRun run(setup);
    std::vector<std::string> order;
    run.world().observe([&order](std::string_view actor, const caf::type_erased_tuple&) {
      order.emplace_back(actor);
    });
    run.start();
    run.run(random);
    return order;
  };
  CHECK(trace(21) == trace(21));
  CHECK(trace(21) != trace(22));
}

TEST_CASE("many ranks: a stop is served wherever it comes, and what was done is saved",
          "[actors][P3]") {
  RunSetup setup{.steps = 4, .manual_streams = true};
  setup.parallel = split_over(3, "full");
  const PlainRun plain(setup);
  int stopped = 0;
  for (std::uint64_t after = 0; after < 6000; after += sanitized() ? 234 : 117) {
    INFO("stop requested after " << after << " events");
    Random random(after);
    TrainingRun run(setup);
    run.start();
    for (std::uint64_t event = 0; event < after && run.step(random); ++event) {
    }
    run.request_stop();
    run.run(random);
    const actors::RunFinished end = run.finished();
    const bool all_done = end.exit_code == kExitFinished;
    REQUIRE((all_done || end.exit_code == kExitStopped));
    REQUIRE((!all_done || end.step == setup.steps));
    REQUIRE(static_cast<std::int64_t>(run.steps.size()) == end.step);
    REQUIRE((end.step == 0 || run.checkpoints.written.contains(end.step)));
    require_same(run, plain);
    stopped += all_done ? 0 : 1;
  }
  CHECK(stopped > 5);
}

TEST_CASE("many ranks: the stream of any rank may stand still, and no handler waits for it",
          "[actors][EX-3][EX-4]") {
  RunSetup setup{.steps = 3, .lanes = 6, .manual_streams = true};
  setup.parallel = GENERATE(split_over(3, "full"), split_over(2, "optimizer", "every_lane"));
  const PlainRun plain(setup);
  for (std::size_t held = 0; held < 4 * static_cast<std::size_t>(setup.parallel.ranks) + 1;
       ++held) {
    INFO("held: stream " << held);
    TrainingRun run(setup);
    run.manual()[held]->held = true;
    run.start();
    run.run();
    CHECK(run.world().runnable() == 0);
    CHECK_FALSE(run.over());
    for (std::size_t i = 0; i < run.manual().size(); ++i) {
      // An update waits on its stream for the copy of a snapshot.
      const bool waits_for_copy = held % 4 == 1 && i + 1 == held;
      CHECK((run.manual()[i]->pending() == 0 || i == held || waits_for_copy));
    }
    run.manual()[held]->held = false;
    run.run();
    REQUIRE(run.finished().exit_code == kExitFinished);
    require_same(run, plain);
  }
}

}  // namespace
}  // namespace train::test
