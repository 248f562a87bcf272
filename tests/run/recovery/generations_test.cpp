// The head between generations, of one node and of several: the table's rows carried out, with
// other nodes that say what a script says. Those that restore checkpoints:
// tests/actors/cluster/recovery.

#include "run/recovery/generations.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_codes.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "kernels/backend.hpp"
#include "run/memory/memory_layout.hpp"
#include "run/prepared_run.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/log_lines.hpp"
#include "tests/support/runs/small_run.hpp"

namespace train::run::generations_test {
namespace {

using Words = std::vector<std::string>;

/// A run of four lanes on so many nodes, with two ranks on each.
class NodesRun {
 public:
  explicit NodesRun(std::int64_t nodes) {
    configs::RunConfig config = test::small_run(512);
    config.run.dir = (directory_ / "runs").string();
    config.run.steps = 100;
    config.run.tensorboard = false;
    config.eval.interval_steps = 0;
    config.data.dir = directory_.path().string();
    config.batch.lanes = 4;
    config.parallel.ranks = 2 * nodes;
    config.parallel.nodes = nodes;
    config.parallel.interface = nodes > 1 ? "lo" : "";
    config.checkpoint.local_dir = "none";
    config.recovery.max_respawns = 2;
    for (const char* const file : {"train.bin", "val.bin"}) {
      test::write_bytes(directory_ / file, std::string(400, '\1'));
    }
    auto plan = plan_run(config);
    INFO((plan ? "" : plan.error().message));
    REQUIRE(plan);
    auto prepared = prepare_run(std::move(plan).value(), {});
    INFO((prepared ? "" : prepared.error().message));
    REQUIRE(prepared);
    run_.emplace(std::move(prepared).value());
    run_->nodes.position.nodes = nodes;
    run_->nodes.ranks_at_start = 2 * nodes;
    run_->nodes.nodes_at_start = nodes;
    run_->nodes.members.clear();
    for (std::int64_t node = 0; node < nodes; ++node) {
      run_->nodes.members.push_back(node);
    }
  }
  [[nodiscard]] PreparedRun& get() { return *run_; }

 private:
  test::TempDirectory directory_;
  std::optional<PreparedRun> run_;
};

/// Other nodes that come, and find room, as a script says; `words`: what was asked of them.
class ScriptedNodes final : public OtherNodes {
 public:
  ScriptedNodes(PreparedRun& run, std::vector<Result<Membership>> meetings,
                std::vector<Status> places = {})
      : run_(run), meetings_(std::move(meetings)), places_(std::move(places)) {}

  Result<Membership> meet() override {
    words.emplace_back("meet");
    REQUIRE(met_ < meetings_.size());
    return meetings_[met_++];
  }
  Status place(std::span<const std::int64_t> members) override {
    words.push_back("place " + node_names(members));
    run_.nodes.members.assign(members.begin(), members.end());
    return placed_ < places_.size() ? places_[placed_++] : Status();
  }
  void join_again() override { words.emplace_back("again"); }
  void end(std::int32_t exit_code) override { words.push_back(fmt::format("end {}", exit_code)); }

  Words words;

 private:
  PreparedRun& run_;
  std::vector<Result<Membership>> meetings_;
  std::vector<Status> places_;
  std::size_t met_ = 0, placed_ = 0;
};

/// All of `others` nodes have come, but for those missing, and those returned besides.
Membership met(std::size_t others, std::vector<std::int64_t> missing = {},
               std::vector<std::int64_t> returned = {}) {
  return {.held = std::vector<NodeSteps>(others),
          .missing = std::move(missing),
          .returned = std::move(returned),
          .cut = std::nullopt};
}

/// Generations that end as a script says; `starts`: nodes and ranks of each.
class ScriptedRanks {
 public:
  explicit ScriptedRanks(std::vector<GenerationEnd> ends) : ends_(std::move(ends)) {}
  Result<RunFinished> operator()(const PreparedRun& run) {
    starts.push_back(
        fmt::format("{} of {}", run.config().parallel.ranks, run.config().parallel.nodes));
    REQUIRE(starts.size() <= ends_.size());
    const GenerationEnd end = ends_[starts.size() - 1];
    return RunFinished{run.first_step(),
                       end == GenerationEnd::run_over ? kExitFinished : kExitFailure,
                       end == GenerationEnd::run_over ? "finished" : "rank 1 failed: x", end};
  }
  GenerationRunner runner() {
    return [this](const PreparedRun& run) { return (*this)(run); };
  }

  Words starts;

 private:
  std::vector<GenerationEnd> ends_;
};

/// Keeps in this node's memory what its ranks keep there after `step` steps.
void keep_in_memory(PreparedRun& run, std::int64_t step) {
  REQUIRE(run.memory.make_room(run.plan, run.nodes.position).ok());
  const auto memory = run.memory.current();
  REQUIRE(memory != nullptr);
  engine::RankOptions options = run.plan.engine;
  const auto [first, end] = run.nodes.position.ranks(options.parallel.ranks);
  for (options.rank = first; options.rank < end; ++options.rank) {
    const engine::RankEngine engine(kernels::cpu_backend(), options);
    write_to_memory(*memory_rows(engine, *memory), options.rank, step, *memory);
  }
}

constexpr auto kLost = GenerationEnd::rank_lost;
constexpr auto kBack = GenerationEnd::nodes_returned;
constexpr auto kOver = GenerationEnd::run_over;

TEST_CASE("generations: a node that does not come is gone on without, and taken when it is back",
          "[run][generations][P4]") {
  NodesRun run(2);
  const test::LogLines lines;
  ScriptedNodes others(run.get(), {met(1), met(1, {1}), met(0, {}, {1})});
  ScriptedRanks ranks({kLost, kBack, kOver});
  const auto outcome = run_generations(run.get(), ranks.runner(), &others);
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitFinished);
  CHECK(ranks.starts == Words{"4 of 2", "2 of 1", "4 of 2"});
  CHECK(others.words == Words{"meet", "again", "meet", "place node 0", "again", "meet",
                              "place nodes 0, 1", "end 0"});
  CHECK(lines.count("nodes_lost node 1 did not come back within") == 1);
  CHECK(lines.count("nodes_returned node 1 came back") == 1);
}

TEST_CASE("generations: nodes that are back and have no place are sent away, whoever is missing",
          "[run][generations][P4]") {
  const bool missing = GENERATE(false, true);
  NodesRun run(2);
  const test::LogLines lines;
  // Five nodes would have five ranks at least, and there are four lanes.
  ScriptedNodes others(run.get(),
                       {met(1), missing ? met(1, {1}, {2, 3, 4, 5}) : met(1, {}, {2, 3, 4})});
  ScriptedRanks ranks({kLost, kOver});
  const auto outcome = run_generations(run.get(), ranks.runner(), &others);
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitFinished);
  CHECK(ranks.starts == Words{"4 of 2", missing ? "2 of 1" : "4 of 2"});
  CHECK(others.words ==
        Words{"meet", "again", "meet", missing ? "place node 0" : "place nodes 0, 1", "end 0"});
  CHECK(lines.count("nodes_not_taken nodes 2, 3, 4") == 1);
}

TEST_CASE("generations: nodes that never come begin nothing", "[run][generations][P4]") {
  NodesRun run(2);
  ScriptedNodes others(run.get(), {met(1, {1})});
  ScriptedRanks ranks({});
  const auto outcome = run_generations(run.get(), ranks.runner(), &others);
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitStopped);
  CHECK_THAT(outcome->text, Catch::StartsWith("node 1 did not come within ") &&
                                Catch::Contains("nothing was begun"));
  CHECK(ranks.starts.empty());
  CHECK(others.words == Words{"meet", "end 75"});
}

TEST_CASE("generations: a head whose own network is cut ends, to be run again",
          "[run][generations][P4]") {
  NodesRun run(2);
  Membership cut = met(1, {});
  cut.cut = failure("no network");
  ScriptedNodes others(run.get(), {met(1), cut});
  ScriptedRanks ranks({kLost});
  const auto outcome = run_generations(run.get(), ranks.runner(), &others);
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitStopped);
  CHECK_THAT(outcome->text, Catch::StartsWith("the head's network did not come back within ") &&
                                Catch::Contains("no network"));
  CHECK(others.words == Words{"meet", "again", "meet", "end 75"});
}

TEST_CASE("generations: a node without room for snapshots keeps none, and the ranks start",
          "[run][generations][P4]") {
  NodesRun run(2);
  const test::LogLines lines;
  ScriptedNodes others(run.get(), {met(1), met(1)}, {failure("node 1 has no room")});
  ScriptedRanks ranks({kLost, kOver});
  const auto outcome = run_generations(run.get(), ranks.runner(), &others);
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitFinished);
  CHECK(ranks.starts.size() == 2);
  CHECK(lines.count("no_room node 1 has no room") == 1);
}

TEST_CASE("generations: nodes that do not get their snapshots start without any of them",
          "[run][generations][P3][P4]") {
  const bool placed = GENERATE(true, false);
  NodesRun run(2);
  const test::LogLines lines;
  Membership second = met(1);
  second.held.front().own = {4};
  ScriptedNodes others(run.get(), {met(1), second},
                       {placed ? Status() : Status(failure("node 1 is cut off"))});
  std::vector<std::int64_t> starts;
  const auto outcome = run_generations(
      run.get(),
      [&starts](PreparedRun& prepared) -> Result<RunFinished> {
        starts.push_back(prepared.first_step());
        if (starts.size() > 1) {
          return RunFinished{100, kExitFinished, "finished", kOver};
        }
        keep_in_memory(prepared, 4);
        return RunFinished{5, kExitFailure, "rank 1 failed: x", kLost};
      },
      &others);
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitFinished);
  CHECK(starts == std::vector<std::int64_t>{0, placed ? 4 : 0});
  CHECK(run.get().memory.start().has_value() == placed);
  CHECK(lines.count("memory_not_restored node 1 is cut off") == (placed ? 0 : 1));
  CHECK(others.words ==
        (placed ? Words{"meet", "again", "meet", "place nodes 0, 1", "end 0"}
                : Words{"meet", "again", "meet", "place nodes 0, 1", "place nodes 0, 1", "end 0"}));
}

TEST_CASE("generations: starts lost in a row end a run of several nodes that has saved nothing",
          "[run][generations][P4]") {
  NodesRun run(2);
  ScriptedNodes others(run.get(), {met(1), met(1), met(1), met(1)});
  ScriptedRanks ranks({kLost, kLost, kLost});  // recovery.max_respawns is 2
  const auto outcome = run_generations(run.get(), ranks.runner(), &others);
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitFailure);
  CHECK(outcome->text == "rank 1 failed: x");
  CHECK(others.words.back() == "end 1");
}

TEST_CASE("generations: starts lost in a row leave one node a rank less",
          "[run][generations][P4]") {
  NodesRun run(1);
  ScriptedRanks ranks({kLost, kLost, kLost, kOver});
  const auto outcome = run_generations(run.get(), ranks.runner());
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitFinished);
  CHECK(ranks.starts == Words{"2 of 1", "2 of 1", "2 of 1", "1 of 1"});
  CHECK(run.get().generation == 3);
}

TEST_CASE("generations: the next phase meets nobody, and is no lost start",
          "[run][generations][P4]") {
  NodesRun run(1);
  constexpr auto kPhase = GenerationEnd::phase_over;
  ScriptedRanks ranks({kPhase, kPhase, kPhase, kPhase, kOver});
  const auto outcome = run_generations(run.get(), ranks.runner());
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitFinished);
  CHECK(ranks.starts == Words(5, "2 of 1"));
}

TEST_CASE("generations: an error of the meeting or of the ranks ends the run on all nodes",
          "[run][generations][P4]") {
  const bool meeting = GENERATE(true, false);
  NodesRun run(2);
  const Error refused = user_error("no");
  ScriptedNodes others(run.get(), {meeting ? Result<Membership>(refused) : met(1)});
  const auto outcome = run_generations(
      run.get(), [&](PreparedRun&) -> Result<RunFinished> { return refused; }, &others);
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().message == "no");
  CHECK(others.words == Words{"meet", "end 2"});
}

}  // namespace
}  // namespace train::run::generations_test
