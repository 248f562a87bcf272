// `actortrain run --profile`: what is recorded is the run, whole and in order.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

#include "actors/train/runtime/rank_profile.hpp"
#include "cli/profile/run_profile.hpp"
#include "configs/load_config.hpp"
#include "run/plan/run_plan.hpp"
#include "tests/integration/event_log.hpp"

namespace train::test {
namespace {

using nlohmann::json;

Words profiled(int ranks, const std::string& strategy, const std::string& transport) {
  Words words = {"run", "tiny.toml", "--profile"};
  for (const std::string& key :
       {fmt::format("parallel.ranks={}", ranks), "parallel.strategy=" + strategy,
        "parallel.transport=" + transport, std::string("run.steps=6"),
        std::string("eval.interval_steps=3")}) {
    words.insert(words.end(), {"--set", key});
  }
  return words;
}

json read_json(const fs::path& path) {
  json parsed = json::parse(read_bytes(path), nullptr, false);
  REQUIRE(parsed.is_object());
  return parsed;
}

engine::ShardPlan plan_of_run(const fs::path& run) {
  const auto config = configs::load_config((run / "config.toml").string());
  REQUIRE(config.ok());
  auto options = run::engine_options(*config, config->model.vocab_size);
  REQUIRE(options.ok());
  auto plan = engine::plan_of(*options);
  REQUIRE(plan.ok());
  return std::move(plan).value();
}

actors::RankProfile rank_profile(const fs::path& run, int rank) {
  const fs::path file = run / "profile" / fmt::format("rank-{}.json", rank);
  auto profile = actors::parse_profile(read_bytes(file), file.string());
  REQUIRE(profile.ok());
  return std::move(profile).value();
}

using Operation = std::tuple<engine::Channel, std::uint32_t, engine::CollectiveKind, int>;

void check_collectives(const actors::RankProfile& profile, const engine::ShardPlan& plan) {
  std::map<std::uint64_t, std::set<Operation>> by_command;
  for (const actors::CollectiveRecord& one : profile.collectives.records) {
    CHECK(by_command[one.command].emplace(one.channel, one.index, one.kind, one.group).second);
    CHECK(one.requested_ns <= one.begin_ns);
    CHECK(one.begin_ns <= one.end_ns);
  }
  std::map<std::string, int> commands;
  const engine::PassList passes;
  std::size_t operations = 0;
  for (const actors::CommandRecord& command : profile.commands.records) {
    ++commands[profile.command_names.at(static_cast<std::size_t>(command.name))];
    std::set<Operation> expected;
    if (static_cast<std::size_t>(command.name) < passes.all().size()) {
      for (const engine::CollectiveOp& op : engine::expand(plan, passes.at(command.name))) {
        expected.emplace(op.channel, op.index, op.kind, op.group);
      }
    }
    operations += expected.size();
    CHECK(by_command[command.command] == expected);
  }
  CHECK(operations == profile.collectives.records.size());
  CHECK(commands["train_step"] == 6);
  CHECK(commands["evaluate"] == 3);
}

/// Every lane of this rank was computed once a step, forward and backward, by every unit.
void check_lanes(const actors::RankProfile& profile, const engine::ShardPlan& plan) {
  std::map<std::tuple<std::string, std::int64_t, int, int>, int> passes;
  REQUIRE_FALSE(profile.streams.empty());
  for (const actors::Stretch& one : profile.streams.front().stretches) {
    // "forward" of "forward attention", a part of a block.
    const std::string& name = profile.names[one.name];
    ++passes[{name.substr(0, name.find(' ')), one.step, one.unit, one.lane}];
  }
  const engine::LaneSchedule& lanes = plan.train_lanes();
  for (const std::int64_t lane : lanes.lanes_of(profile.rank)) {
    for (int step = 0; step < 6; ++step) {
      for (int unit = 0; unit < static_cast<int>(plan.unit_count()); ++unit) {
        CHECK(passes[{"forward", step, unit, static_cast<int>(lane)}] > 0);
        CHECK(passes[{"backward", step, unit, static_cast<int>(lane)}] > 0);
      }
    }
  }
}

/// The trace viewer's file: sorted, and no two events of a track at the same time.
void check_trace(const fs::path& run, int ranks) {
  const json trace = read_json(run / "profile/trace.json");
  std::map<std::pair<int, int>, double> ends;
  std::map<std::pair<int, int>, std::string> names;
  double last = 0.0;
  for (const json& event : trace["traceEvents"]) {
    const auto track = std::pair(event["pid"].get<int>(), event["tid"].get<int>());
    if (event["ph"] == "M") {
      names[track] = event["args"]["name"].get<std::string>();
      continue;
    }
    const double begin = event["ts"].get<double>();
    REQUIRE(begin >= last);
    REQUIRE(begin >= ends[track] - 1e-3);  // decimals of a double, microseconds
    REQUIRE(names.contains(track));
    last = begin;
    ends[track] = begin + event["dur"].get<double>();
  }
  std::set<int> drawn;
  for (const auto& [track, end] : ends) {
    drawn.insert(track.first);
  }
  CHECK(drawn.size() == static_cast<std::size_t>(ranks));
}

void check_summary(const fs::path& run, int ranks, bool alone) {
  const json summary = read_json(run / "profile/summary.json");
  REQUIRE(summary["ranks"].size() == static_cast<std::size_t>(ranks));
  CHECK(summary["remarks"].empty());
  double kernels = 0.0;
  std::set<std::string> of_blocks;
  for (const json& kernel : summary["kernels"]) {
    kernels += kernel["seconds"].get<double>();
    if (kernel["unit"] == "block") {
      of_blocks.insert(kernel["what"].get<std::string>());
    }
  }
  for (const char* part :
       {"forward attention", "forward mlp", "backward attention", "backward mlp"}) {
    CHECK(of_blocks.count(part) == 1);
  }
  double busy = 0.0;
  for (const json& rank : summary["ranks"]) {
    CHECK(rank["steps"] == 3);  // Of 6, without the first ones.
    CHECK(rank["steps_left_out"] == cli::kFirstSteps);
    const double step = rank["step_seconds"].get<double>();
    CHECK(step > 0.0);
    CHECK(rank["busy_seconds"].get<double>() + rank["waiting_seconds"].get<double>() ==
          Approx(step));
    CHECK((rank["sent_bytes"].get<double>() > 0.0) == !alone);
    busy += rank["busy_seconds"].get<double>() / ranks;

    const auto profile = rank_profile(run, rank["rank"].get<int>());
    cli::TimeSpans moving;
    for (const actors::CollectiveRecord& one : profile.collectives.records) {
      moving.push_back({one.requested_ns, one.end_ns});
    }
    const auto in_steps = cli::common(cli::united(moving), cli::training_steps(profile));
    const double communication = static_cast<double>(cli::total_ns(in_steps)) * 1e-9 / 3.0;
    CHECK(rank["exposed_seconds"].get<double>() + rank["overlapped_seconds"].get<double>() ==
          Approx(communication));
    CHECK((communication > 0.0) == !alone);
  }
  CHECK(kernels == Approx(busy));
}

void check_profile(int ranks, const std::string& strategy, const std::string& transport) {
  INFO(ranks << " ranks, " << strategy << ", " << transport);
  const RunSite site;
  const Ended ended = site.call(profiled(ranks, strategy, transport));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.out, "exposed"));
  const engine::ShardPlan plan = plan_of_run(site.run());
  for (int rank = 0; rank < ranks; ++rank) {
    const actors::RankProfile profile = rank_profile(site.run(), rank);
    check_collectives(profile, plan);
    check_lanes(profile, plan);
  }
  check_trace(site.run(), ranks);
  check_summary(site.run(), ranks, ranks == 1);
}

TEST_CASE("profile: every lane and every collective of every rank is recorded",
          "[integration][.full][profile]") {
  check_profile(2, "full", "inproc");
  check_profile(2, "optimizer", "tcp");
  check_profile(1, "none", "inproc");
}

TEST_CASE("profile: with --json standard output has objects alone", "[integration][profile]") {
  const RunSite site;
  Words words = profiled(1, "none", "inproc");
  words.emplace_back("--json");
  const Ended ended = site.call(words);
  REQUIRE(ended.exit_code == 0);
  std::istringstream lines(ended.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    INFO(line);
    CHECK(json::parse(line, nullptr, false).is_object());
  }
  CHECK(count > 6);
  CHECK(ended.err.find("profile/trace.json") != std::string::npos);
  check_summary(site.run(), 1, /*alone=*/true);
}

TEST_CASE("profile: it changes no bit, and without it nothing is kept",
          "[integration][.full][profile]") {
  const RunSite plain;
  const RunSite watched;
  Words words = profiled(2, "full", "inproc");
  REQUIRE(watched.call(words).exit_code == 0);
  words.erase(std::find(words.begin(), words.end(), "--profile"));
  REQUIRE(plain.call(words).exit_code == 0);
  CHECK(results_of(plain.run()) == results_of(watched.run()));
  CHECK(fs::exists(watched.run() / "profile"));
  CHECK_FALSE(fs::exists(plain.run() / "profile"));
}

TEST_CASE("profile: a run that is stopped or fails still shows what it has",
          "[integration][.full][profile]") {
  const bool stopped = GENERATE(true, false);
  const std::string transport = GENERATE("inproc", "tcp");
  INFO((stopped ? "stopped, " : "failed, ") << transport);
  const RunSite site;
  Words words = profiled(2, "none", transport);
  // Decay by lr * weight_decay = a million: no run survives that for long.
  const Words keys =
      stopped
          ? Words{"run.steps=1000000"}
          : Words{"run.steps=20",          "optimizer.lr=1000",      "optimizer.weight_decay=1000",
                  "optimizer.grad_clip=0", "schedule.name=constant", "schedule.warmup_steps=0"};
  for (const std::string& key : keys) {
    words.insert(words.end(), {"--set", key});
  }
  const auto process = site.start(words);
  if (stopped) {
    wait_for_step(site, *process, 1);
    process->send(SIGTERM);
  }
  const Ended ended = process->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == (stopped ? 75 : 1));
  const json summary = read_json(site.run() / "profile/summary.json");
  CHECK(summary["ranks"].size() == 2);
  CHECK(summary["ranks"][0]["steps"].get<int>() > 0);
  check_trace(site.run(), 2);
}

TEST_CASE("run: the squares of the units' norms add up to the square of the whole",
          "[integration][run]") {
  const RunSite site;
  site.train();
  int steps = 0;
  for (const json& line : metrics_of(site.run())) {
    if (!line.contains("grad_norm")) {
      continue;
    }
    ++steps;
    const json& norms = line["unit_grad_norm"];
    CHECK(norms.size() == 4);
    double square = 0.0;
    for (const auto& [unit, norm] : norms.items()) {
      INFO(unit);
      CHECK(norm.get<double>() > 0.0);
      square += std::pow(norm.get<double>(), 2);
    }
    CHECK(std::sqrt(square) == Approx(line["grad_norm"].get<double>()).epsilon(1e-6));
  }
  CHECK(steps == 20);
}

}  // namespace
}  // namespace train::test
