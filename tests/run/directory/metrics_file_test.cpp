#include "run/directory/metrics_file.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <string>

#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::run::metrics_file_test {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kAnyStep = std::numeric_limits<std::int64_t>::max();

std::string line_of(std::int64_t step, std::size_t filling = 0) {
  return fmt::format(R"({{"step":{},"loss":1.5,"filling":"{}"}})", step, std::string(filling, 'x'));
}
std::string evaluation_of(std::int64_t step) {
  return fmt::format(R"({{"event":"evaluation","step":{},"val_loss":2.5}})", step);
}
std::string choices_of(std::int64_t step) {
  return fmt::format(R"({{"event":"choices","step":{},"choices":{{}}}})", step);
}

std::string samples_of(std::int64_t step) {
  return fmt::format(R"({{"event":"samples","step":{},"sample_seconds":0.5}})", step);
}

}  // namespace

TEST_CASE("metrics_file: the end is that of the last line of a step that counts",
          "[run][metrics_file]") {
  const test::TempDirectory directory;
  const fs::path file = directory / "metrics.jsonl";
  CHECK(find_metrics_end(directory.path(), kAnyStep)->kept_bytes == 0);
  std::string text = evaluation_of(0) + "\n";
  std::vector<std::size_t> ends;
  for (std::int64_t step = 1; step <= 9; ++step) {
    text += line_of(step) + "\n";
    if (step % 3 == 0) {
      text += evaluation_of(step) + "\n" + choices_of(step) + "\n";
    }
    if (step % 2 == 0) {
      text += samples_of(step) + "\n";
    }
    ends.push_back(text.size());
  }
  const std::string torn =
      GENERATE("", "{\"step\": 10", "{\"step\": 10, \"loss\": 1}", "\n", "no\n");
  test::write_bytes(file, text + torn);
  for (std::int64_t step = 1; step <= 9; ++step) {
    INFO("step " << step);
    const auto end = find_metrics_end(directory.path(), step);
    REQUIRE(end);
    CHECK(end->kept_bytes == ends[static_cast<std::size_t>(step) - 1]);
    CHECK(end->newest_step == step);
    CHECK(end->evaluated == (step % 3 == 0));
    CHECK(end->answered == (step % 3 == 0));
    CHECK(end->sampled == (step % 2 == 0));
  }
  CHECK(find_metrics_end(directory.path(), 0)->kept_bytes == evaluation_of(0).size() + 1);
  CHECK(find_metrics_end(directory.path(), kAnyStep)->newest_step == 9);
  CHECK(find_metrics_end(directory.path(), kAnyStep)->unreadable ==
        (torn == "\n" || torn == "no\n"));
}

TEST_CASE("metrics_file: lines of any length, cut anywhere, end where they end",
          "[run][metrics_file]") {
  const std::uint32_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const test::TempDirectory directory;
  const fs::path file = directory / "metrics.jsonl";
  std::string text;
  std::vector<std::size_t> ends;
  for (std::int64_t step = 1; step <= 40; ++step) {
    const bool long_one = random() % 8 == 0;
    text += line_of(step, random() % (long_one ? 100'000 : 3'000)) + "\n";
    ends.push_back(text.size());
  }
  for (int round = 0; round < 100; ++round) {
    const std::size_t size = random() % (text.size() + 1);
    const auto step = static_cast<std::int64_t>(1 + random() % 40);
    INFO("first " << size << " bytes, step " << step);
    test::write_bytes(file, text.substr(0, size));
    std::size_t expected = 0;
    std::int64_t newest = 0;
    for (std::size_t i = 0; i < ends.size() && ends[i] <= size; ++i) {
      if (static_cast<std::int64_t>(i) < step) {
        expected = ends[i];
        newest = static_cast<std::int64_t>(i) + 1;
      }
    }
    const auto end = find_metrics_end(directory.path(), step);
    REQUIRE(end);
    CHECK(end->kept_bytes == expected);
    CHECK(end->newest_step == newest);
  }
}

TEST_CASE("metrics_file: a long past is not read", "[run][metrics_file]") {
  const test::TempDirectory directory;
  const fs::path file = directory / "metrics.jsonl";
  constexpr std::int64_t kSteps = 40'000;
  std::string text;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    text += line_of(step, 800) + "\n";
  }
  test::write_bytes(file, text);
  const test::CountedReads reads("metrics.jsonl");
  MetricsFile metrics(directory.path());
  CHECK(metrics.end_at(kSteps - 10).newest_step == kSteps - 10);
  REQUIRE(metrics.resume_from(kSteps - 10));
  CHECK(reads.bytes() < 200'000);
  const std::size_t line = line_of(kSteps, 800).size() + 1;
  CHECK(fs::file_size(file) == text.size() - 10 * line);
}

TEST_CASE("metrics_file: a resumed run goes on behind the steps that count, also on a full disk",
          "[run][metrics_file][ST-7]") {
  const test::TempDirectory directory;
  MetricsFile metrics(directory.path());
  REQUIRE(metrics.resume_from(0));
  metrics.append(line_of(1));
  {
    const test::FailingDisk disk({.error_number = ENOSPC, .at = 0, .persistent = true});
    for (std::int64_t step = 2; step <= 6; ++step) {
      metrics.append(line_of(step));
    }
    metrics.append(evaluation_of(4));
    CHECK(metrics.end_at(4).evaluated);  // it waits
    REQUIRE(metrics.resume_from(3));
    CHECK_FALSE(metrics.end_at(4).evaluated);
    metrics.append(line_of(4));
    CHECK(metrics.end_at(kAnyStep).newest_step == 4);
  }
  metrics.append(line_of(5));
  std::string expected;
  for (std::int64_t step = 1; step <= 5; ++step) {
    expected += line_of(step) + "\n";
  }
  CHECK(test::read_bytes(directory / "metrics.jsonl") == expected);
}

TEST_CASE("metrics_file: evaluations that wait, or are no number, are among the values",
          "[run][metrics_file][P1]") {
  const test::TempDirectory directory;
  MetricsFile metrics(directory.path());
  REQUIRE(metrics.resume_from(0).ok());
  metrics.append(evaluation_of(2));
  metrics.append(R"({"event":"evaluation","step":4,"val_loss":null})");
  const test::FailingDisk disk({.error_number = ENOSPC, .at = 0, .persistent = true});
  metrics.append(evaluation_of(6));
  metrics.append(evaluation_of(8));
  const auto values = metrics.evaluated("val_loss", 6);
  REQUIRE(values);
  REQUIRE(values->size() == 3);
  CHECK(values->at(0).step == 2);
  CHECK(std::isnan(values->at(1).value));
  CHECK(values->at(2).step == 6);
}

TEST_CASE("metrics_file: a run that begins again has no lines", "[run][metrics_file]") {
  const test::TempDirectory directory;
  test::write_bytes(directory / "metrics.jsonl", evaluation_of(0) + "\n" + line_of(1) + "\n");
  MetricsFile metrics(directory.path());
  REQUIRE(metrics.resume_from(0));
  CHECK(test::read_bytes(directory / "metrics.jsonl").empty());
}

}  // namespace train::run::metrics_file_test
