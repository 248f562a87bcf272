// The simulator finds what it is for, and nothing where there is nothing.

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "tests/sim/checks.hpp"
#include "tests/sim/simulation.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::sim {
namespace {

/// Token files for all cases.
class Tokens {
 public:
  Tokens() : directory_(test::quick_directory()) { write_tokens(path()); }
  [[nodiscard]] std::string path() const { return directory_.path().string(); }

 private:
  test::TempDirectory directory_;
};

struct Find {
  Bug bug;
  const char* text;  ///< Part of what is said of it.
};

constexpr std::uint64_t kFoundWithin = 30;  // seeds from 0

TEST_CASE("sim: finds each deliberate defect, replays it, and is silent without it",
          "[sim][EX-1][EX-2][EX-4][CK-1]") {
  const Find find =
      GENERATE(Find{Bug::rank_local_evaluation, ""}, Find{Bug::commit_before_fsync, "P3"},
               Find{Bug::collective_out_of_order, "collectives differ"},
               Find{Bug::stale_generation, "collective"},
               Find{Bug::lost_credit, "conductor waits for the ranks"});
  const Tokens tokens;
  INFO("defect: " << name_of(find.bug));
  std::uint64_t seed = 0;
  Outcome outcome = simulate(seed, find.bug, tokens.path());
  while (outcome.violation.empty() && seed < kFoundWithin) {
    outcome = simulate(++seed, find.bug, tokens.path());
  }
  INFO("seed " << seed << ": " << outcome.violation);
  REQUIRE_FALSE(outcome.violation.empty());
  CHECK_THAT(outcome.violation, Catch::Contains(find.text));
  const Outcome again = simulate(seed, find.bug, tokens.path());
  CHECK(again.violation == outcome.violation);
  CHECK(again.trace == outcome.trace);
  CHECK(simulate(seed, Bug::none, tokens.path()).violation.empty());
}

TEST_CASE("sim: a start that trains beyond its run.steps_per_job is found", "[sim]") {
  Reference reference;
  reference.steps.resize(9);
  reference.digests.resize(10);
  Checks checks(reference);
  const auto trains = [&checks](std::int64_t step) {
    actors::StepFinished event;
    event.step = step;
    checks.hear(caf::make_message(event));
  };
  checks.begin(3, 1);
  checks.begin_job(3, 2);
  CHECK_NOTHROW(trains(4));
  CHECK_NOTHROW(trains(5));
  checks.begin(5, 1);  // a rank was lost as the part ended: the next generation
  CHECK_THROWS_WITH(trains(6), Catch::Contains("a start that ends at step 5"));
  checks.begin_job(5, 0);
  CHECK_NOTHROW(trains(6));
}

TEST_CASE("sim: a seed gives the same events in the same order, another one others", "[sim]") {
  const Tokens tokens;
  Tally tally;
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    INFO("seed " << seed << ": " << describe(plan_of_seed(seed)));
    const Outcome first = simulate(seed, Bug::none, tokens.path());
    const Outcome again = simulate(seed, Bug::none, tokens.path());
    CHECK(first.violation.empty());
    CHECK(first.trace == again.trace);
    CHECK(first.tally.events == again.tally.events);
    CHECK(first.trace != simulate(seed + 1000, Bug::none, tokens.path()).trace);
    tally.add(first.tally);
  }
  CHECK(tally.generations > 30);  // some ranks were lost, some launchers too
  CHECK(tally.starts > 60);
  CHECK(tally.published > 30);
}

TEST_CASE("sim: seeds reach every kind of fault, all numbers of ranks, strategies and losses",
          "[sim]") {
  std::set<std::int64_t> ranks;
  std::set<std::string> strategies;
  std::set<FaultKind> kinds;
  std::set<std::string> retained;
  std::set<std::string> forgotten;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const SeedPlan plan = plan_of_seed(seed);
    ranks.insert(plan.config.parallel.ranks);
    strategies.insert(plan.config.parallel.strategy);
    if (!describe_objective(plan.config).empty()) {
      retained.insert(plan.config.objective.retain_loss);
      forgotten.insert(plan.config.objective.forget_loss);
    }
    for (const Fault& fault : plan.faults) {
      kinds.insert(fault.kind);
    }
  }
  CHECK(ranks == std::set<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(strategies.size() == 5);
  CHECK(kinds.size() == kFaultKinds);
  CHECK(retained == std::set<std::string>{"kl", "l2", "nll"});
  CHECK(forgotten.contains("npo"));
}

}  // namespace
}  // namespace train::sim
