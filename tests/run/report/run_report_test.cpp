#include "run/report/run_report.hpp"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/nanoseconds.hpp"

namespace train::run {
namespace {

/// A report to memory: a step has 1000 tokens of a million FLOP each, and takes the time that the
/// test says.
class ReportedRun {
 public:
  explicit ReportedRun(double peak_flops) {
    REQUIRE(file_);
    auto report = RunReport::open({.directory = directory_.path(),
                                   .total_steps = 100,
                                   .tokens_per_step = 1000,
                                   .flops_per_token = 1e6,
                                   .peak_flops = peak_flops,
                                   .keep_rate = [this](double flops) { rate_ = flops; },
                                   .tensorboard = false,
                                   .out = &output_});
    REQUIRE(report.ok());
    report_ = std::move(report).value();
  }
  /// Its line says so much of the peak, in percent; -1: nothing.
  int mfu_of_step(double seconds) {
    StepFinished event;
    event.step = ++step_;
    event.trained_ns = trained_ns_ +=
        static_cast<std::int64_t>(seconds * static_cast<double>(kSecond));
    REQUIRE_NOTHROW(report_->step(event, late_ns_));
    const std::string all = test::read_bytes(directory_ / "out");
    const std::string line = all.substr(all.rfind("step "));
    const std::size_t mfu = line.find("MFU ");
    return mfu == std::string::npos ? -1 : std::atoi(line.c_str() + mfu + 4);
  }
  [[nodiscard]] std::string metrics() const {
    return test::read_bytes(directory_ / "metrics.jsonl");
  }
  double kept_rate() {
    report_->close();
    return rate_;
  }

 private:
  double rate_ = 0.0;
  test::TempDirectory directory_;
  Descriptor file_{::open((directory_ / "out").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)};
  TextOutput output_{file_.get()};
  std::unique_ptr<RunReport> report_;
  // All reports come at once, as from a head that was kept from its core meanwhile.
  std::int64_t late_ns_ = 1000 * kSecond;
  std::int64_t step_ = 0, trained_ns_ = 0;
};

}  // namespace

TEST_CASE("report: MFU is the share of the measured peak", "[run][run_report]") {
  ReportedRun run(4e9);
  CHECK(run.mfu_of_step(1.0) == 25);
  CHECK(run.mfu_of_step(1.0) == 25);
}

TEST_CASE("report: without a peak there is no MFU", "[run][run_report]") {
  ReportedRun run(0.0);
  CHECK(run.mfu_of_step(1.0) == -1);
  CHECK(run.mfu_of_step(0.1) == -1);
}

TEST_CASE("report: a share that cannot be is left out, and changes no later one",
          "[run][run_report]") {
  ReportedRun run(1e9);
  CHECK(run.mfu_of_step(0.5) == -1);  // 2 GFLOP/s: other load had slowed the peak's measurement.
  CHECK(run.mfu_of_step(1.0) == -1);  // Exactly all of it.
  CHECK(run.mfu_of_step(3.0) == 50);  // Two steps in 4 s.
  CHECK(run.metrics().find("\"mfu\":1.0") == std::string::npos);
}

TEST_CASE("report: at its end it tells the rate of the newest steps", "[run][run_report]") {
  ReportedRun run(4e9);
  CHECK(run.kept_rate() == 0.0);
  (void)run.mfu_of_step(2.0);
  (void)run.mfu_of_step(2.0);
  CHECK(run.kept_rate() == 5e8);
}

TEST_CASE("report: the objective's metrics come first, then those of the model's blocks",
          "[run][run_report]") {
  const test::TempDirectory directory;
  auto report = RunReport::open({.directory = directory.path(),
                                 .total_steps = 3,
                                 .tokens_per_step = 100,
                                 .objective_metrics = {"margin"},
                                 .block_metrics = {"load", "balance"},
                                 .tensorboard = false});
  REQUIRE(report.ok());
  const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  StepFinished step;
  step.step = 1;
  step.objective_metrics = {bits(0.5), bits(2.0), bits(3.0)};
  REQUIRE_NOTHROW((*report)->step(step, 0));
  EvaluationFinished evaluation;  // Of an objective that measures steps alone.
  evaluation.step = 1;
  evaluation.objective_metrics = {bits(4.0), bits(5.0)};
  REQUIRE_NOTHROW((*report)->evaluation(evaluation));
  const std::string metrics = test::read_bytes(directory / "metrics.jsonl");
  const auto found = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')));
  CHECK(found["margin"] == 0.5);
  CHECK(found["load"] == 2.0);
  CHECK(found["balance"] == 3.0);
  const auto evaluated = nlohmann::json::parse(metrics.substr(metrics.find('\n') + 1));
  CHECK(evaluated["val_load"] == 4.0);
  CHECK(evaluated["val_balance"] == 5.0);
  CHECK(evaluated.contains("val_perplexity"));
  CHECK_FALSE(evaluated.contains("val_margin"));
}

TEST_CASE("report: in TensorBoard a start takes the place of the steps that it does again",
          "[run][run_report]") {
  const auto [first_step, char_of_first] =
      GENERATE(table<std::int64_t, char>({{0, '\0'}, {7, '\10'}}));
  const test::TempDirectory directory;
  test::write_bytes(directory / "metrics.jsonl", "{\"step\": 7}\n");
  const auto report = RunReport::open({.directory = directory.path(),
                                       .first_step = first_step,
                                       .total_steps = 9,
                                       .tokens_per_step = 100,
                                       .tensorboard = true});
  REQUIRE(report.ok());
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(directory / "tensorboard")) {
    events += test::read_bytes(entry.path());
  }
  // Fields of tensorboard.Event, in bytes: `step`, then `session_log` with the status START.
  const std::string wanted = {'\x10', char_of_first, '\x3a', '\2', '\x08', '\1'};
  CHECK(events.find(wanted) != std::string::npos);
}

TEST_CASE("report: the block below a new checkpoint does not deny it", "[run][run_report]") {
  const test::TempDirectory directory;
  const Descriptor file(::open((directory / "out").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  TextOutput output(file.get());
  auto report = RunReport::open({.directory = directory.path(),
                                 .total_steps = 1,
                                 .tokens_per_step = 100,
                                 .tensorboard = false,
                                 .output = Output::live,
                                 .out = &output});
  REQUIRE(report.ok());
  StepFinished step;
  step.step = 1;
  (*report)->step(step, 0);
  CHECK_THAT(test::read_bytes(directory / "out"), Catch::Contains("no checkpoint yet"));
  (*report)->checkpoint({.step = 1, .directory = "the-directory", .size_bytes = 1});
  (*report)->close();
  const std::string shown = test::read_bytes(directory / "out");
  CHECK_THAT(shown.substr(shown.find("the-directory")),
             Catch::Contains("checkpoint at step 1") && !Catch::Contains("no checkpoint yet"));
}

TEST_CASE("report: a resumed block names the newest checkpoint, not the state in memory",
          "[run][run_report]") {
  for (const std::int64_t saved : {std::int64_t{0}, std::int64_t{4}}) {
    const test::TempDirectory directory;
    const Descriptor file(
        ::open((directory / "out").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    TextOutput output(file.get());
    test::write_bytes(directory / "metrics.jsonl", "{\"step\": 7}\n");
    auto report = RunReport::open({.directory = directory.path(),
                                   .first_step = 7,
                                   .saved_step = saved,
                                   .total_steps = 8,
                                   .tokens_per_step = 100,
                                   .tensorboard = false,
                                   .output = Output::live,
                                   .out = &output});
    REQUIRE(report.ok());
    StepFinished step;
    step.step = 8;
    (*report)->step(step, 0);
    (*report)->close();
    CHECK_THAT(test::read_bytes(directory / "out"),
               Catch::Contains(saved == 0 ? "no checkpoint yet" : "checkpoint at step 4") &&
                   !Catch::Contains("checkpoint at step 7"));
  }
}

TEST_CASE("report: of packed rows a step's line says what was trained", "[run][run_report]") {
  const test::TempDirectory directory;
  auto report = RunReport::open(
      {.directory = directory.path(),
       .total_steps = 3,
       .tokens_per_step = 100,
       .rows =
           [](std::int64_t step) {
             return engine::RowCount{
                 .weight = 1.0, .trained = 20 + step, .tokens = 75, .positions = 100};
           },
       .tensorboard = false});
  REQUIRE(report.ok());
  StepFinished event;
  event.step = 3;
  event.trained_ns = 2 * kSecond;
  REQUIRE_NOTHROW((*report)->step(event, 0));
  const std::string metrics = test::read_bytes(directory / "metrics.jsonl");
  const std::string line = metrics.substr(metrics.rfind("{\"step\""));
  const nlohmann::json found = nlohmann::json::parse(line);
  CHECK(found["tokens"] == 300);
  CHECK(found["tokens_per_second"] == 50.0);
  CHECK(found["trained_tokens"] == 22);
  CHECK(found["trained_tokens_per_second"] == 11.0);
  CHECK(found["row_fill"] == 0.75);
}

}  // namespace train::run
