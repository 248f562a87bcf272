#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_codes.hpp"
#include "run/program/run_program.hpp"
#include "run/report/run_report.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/nanoseconds.hpp"
#include "tests/support/runs/actor_fixture.hpp"

// Rates as people read them, against tokens over time, by clocks that the test moves.
namespace train::test::rates_test {
namespace {

using Json = nlohmann::json;

/// The lines of steps in metrics.jsonl.
std::vector<Json> lines_of(const std::filesystem::path& directory) {
  std::ifstream file(directory / "metrics.jsonl");
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) {
    Json entry = Json::parse(line);
    if (entry.contains("tokens_per_second")) {
      lines.push_back(std::move(entry));
    }
  }
  return lines;
}

/// What the lines after the first say that the time between their steps was.
double seconds_of(const std::vector<Json>& lines) {
  double seconds = 0.0;
  for (std::size_t at = 1; at < lines.size(); ++at) {
    const auto tokens = lines[at]["tokens"].get<double>() - lines[at - 1]["tokens"].get<double>();
    seconds += tokens / lines[at]["tokens_per_second"].get<double>();
  }
  return seconds;
}

/// The moments at which a rank's clock was asked: its start, then each end of a step or evaluation.
struct Asked {
  std::vector<std::int64_t> ns = {};
};

}  // namespace

TEST_CASE("rates: a run's lines say tokens over the time of its steps, in any order of messages",
          "[actors][rates]") {
  const auto ranks = GENERATE(1, 2);
  const RunSetup setup{.steps = 6,
                       .eval_interval = 3,
                       .manual_streams = true,
                       .parallel = split_over(ranks, "none")};
  for (std::uint64_t seed = Catch::rngSeed(); seed < Catch::rngSeed() + 10; ++seed) {
    INFO("schedule seed " << seed << ", ranks " << ranks);
    Random random(seed);
    TrainingRun run(setup);
    std::int64_t now_ns = kSecond;
    std::vector<Asked> asked(run.ranks());
    for (std::size_t rank = 0; rank < run.ranks(); ++rank) {
      run.runtime(rank).clock = actors::StepClock([&now_ns, to = &asked[rank]] {
        to->ns.push_back(now_ns);
        return now_ns;
      });
    }
    run.start();
    while (run.step(random)) {
      // Steps of milliseconds: a rate is then large beside the one decimal that a line has of it.
      now_ns += static_cast<std::int64_t>(random() % (kSecond / 1000));
    }
    REQUIRE(run.finished().exit_code == kExitFinished);
    // Start, evaluation at 0, steps 1 to 3, evaluation at 3, steps 4 to 6, evaluation at 6.
    std::int64_t first_ns = 0, last_ns = 0;
    for (const Asked& rank : asked) {
      REQUIRE(rank.ns.size() == 10);
      const std::int64_t first_step_ns = rank.ns[2] - rank.ns[1];
      const std::int64_t evaluation_ns = rank.ns[5] - rank.ns[4];
      first_ns = std::max(first_ns, first_step_ns);
      last_ns = std::max(last_ns, first_step_ns + rank.ns[8] - rank.ns[2] - evaluation_ns);
    }
    const std::vector<Json> lines = lines_of(run.directory());
    REQUIRE(lines.size() == 6);
    const double seconds = static_cast<double>(last_ns - first_ns) * 1e-9;
    REQUIRE(seconds_of(lines) == Approx(seconds).epsilon(0.001));
  }
}

namespace {

/// A start of some ranks, whose reports reach the head late and in bursts.
class Start {
 public:
  Start(const std::filesystem::path& directory, std::int64_t first_step, std::int64_t log_interval)
      : step_(first_step) {
    auto report = run::RunReport::open({.directory = directory,
                                        .first_step = first_step,
                                        .total_steps = 1000,
                                        .log_interval = log_interval,
                                        .tokens_per_step = kTokens,
                                        .eval_interval = 5,
                                        .tensorboard = false});
    REQUIRE(report.ok());
    report_ = std::move(report).value();
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      // Processes start one after the other.
      now_ns_[rank] = kSecond * static_cast<std::int64_t>(1 + rank);
      clocks_.push_back(actors::StepClock([now_ns = &now_ns_[rank]] { return *now_ns; }));
      clocks_.back().start();
    }
  }
  /// Steps that `steps_ns` says, an evaluation of 7 s after every fifth.
  void train(const std::vector<std::int64_t>& steps_ns, Random& random) {
    for (const std::int64_t step_ns : steps_ns) {
      end_step(step_ns, random);
      if (step_ % 5 == 0) {
        evaluate(7 * kSecond);
      }
      if (random() % 4 == 0) {
        deliver();
      }
    }
    deliver();
  }
  [[nodiscard]] run::RunProgress progress() const { return report_->progress(); }
  /// From the first step's end to the last one's, without evaluations.
  [[nodiscard]] double seconds() const { return static_cast<double>(steps_ns_) * 1e-9; }
  static constexpr std::int64_t kTokens = 1000;

 private:
  static constexpr std::size_t kRanks = 3;

  // All ranks need each other's gradients: they end together, but for what each is late by.
  void end_step(std::int64_t step_ns, Random& random) {
    steps_ns_ += std::exchange(first_, false) ? 0 : step_ns;
    together_ns_ += step_ns;
    ++step_;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      // The slowest is the one that began first, whose time is the longest.
      const auto early_ns = rank == 0 ? 0 : static_cast<std::int64_t>(random() % (step_ns / 2));
      now_ns_[rank] = 10 * kSecond + together_ns_ - early_ns;
      actors::StepFinished event;
      event.step = step_;
      event.rank = static_cast<std::int32_t>(rank);
      event.trained_ns = clocks_[rank].end_step();
      const auto heard = agreement_.hear(event, kRanks);
      REQUIRE(heard.ok());
      if (*heard) {
        waiting_.push_back(**heard);
      }
    }
  }
  void evaluate(std::int64_t elapsed_ns) {
    together_ns_ += elapsed_ns;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      now_ns_[rank] += elapsed_ns;
      (void)clocks_[rank].set_apart();
    }
  }
  void deliver() {
    for (const actors::StepFinished& event : std::exchange(waiting_, {})) {
      REQUIRE_NOTHROW(report_->step(event, 10'000 * kSecond));
    }
  }

  std::unique_ptr<run::RunReport> report_;
  std::array<std::int64_t, kRanks> now_ns_ = {};
  std::vector<actors::StepClock> clocks_;
  run::RankAgreement agreement_;
  std::vector<actors::StepFinished> waiting_;
  std::int64_t step_;
  bool first_ = true;
  std::int64_t together_ns_ = 0, steps_ns_ = 0;
};

}  // namespace

TEST_CASE("rates: late reports, evaluations and a lost rank leave tokens over time",
          "[actors][rates]") {
  const std::int64_t log_interval = GENERATE(1, 3);
  Random random(Catch::rngSeed());
  const TempDirectory directory;
  const auto steps_of = [&random](std::int64_t first_ns, std::size_t count) {
    std::vector<std::int64_t> steps_ns = {first_ns};
    while (steps_ns.size() < count) {
      steps_ns.push_back(kSecond / 100 + static_cast<std::int64_t>(random() % (kSecond / 5)));
    }
    return steps_ns;
  };
  double before = 0.0;
  {
    Start start(directory.path(), 0, log_interval);
    start.train(steps_of(9 * kSecond, 91), random);
    before = start.seconds();
    // 90 steps of a tenth of a second are less than the window.
    CHECK(start.progress().window_s == Approx(before));
    CHECK(start.progress().tokens_per_second == Approx(90 * Start::kTokens / before));
  }
  CHECK(lines_of(directory.path()).size() == (log_interval == 1 ? 91U : 30U));
  // A rank is lost, 31 steps are to be computed again; minutes pass.
  Start start(directory.path(), 60, log_interval);
  start.train(steps_of(5 * kSecond, 61), random);
  const std::vector<Json> lines = lines_of(directory.path());
  std::vector<Json> again(lines.begin() + (log_interval == 1 ? 60 : 20), lines.end());
  REQUIRE(again.front()["step"] == 60 + log_interval);
  REQUIRE(again.back()["step"] == (log_interval == 1 ? 121 : 120));
  CHECK(start.progress().window_s == Approx(start.seconds()));
  CHECK(start.progress().tokens_per_second == Approx(60 * Start::kTokens / start.seconds()));
  if (log_interval == 1) {
    CHECK(seconds_of(again) == Approx(start.seconds()).epsilon(1e-4));
  } else {
    // The first line has the first, slow step, as well; the last step has no line.
    CHECK(seconds_of(again) <= start.seconds());
    CHECK(seconds_of(again) >= start.seconds() - 4 * 0.21);
  }
}

}  // namespace train::test::rates_test
