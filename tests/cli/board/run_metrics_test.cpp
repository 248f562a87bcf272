#include "cli/board/run_metrics.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/disks/temp_directory.hpp"

namespace train::cli::run_metrics_test {
namespace {

namespace fs = std::filesystem;

struct Site {
  test::TempDirectory home;
  void append(const std::string& text) const {
    std::ofstream(home / "metrics.jsonl", std::ios::app) << text;
  }
  void replace(const std::string& text) const {
    test::write_bytes(home / "new", text);
    fs::rename(home / "new", home / "metrics.jsonl");
  }
};

std::string line(int step, double loss) {
  return fmt::format(
      "{{\"step\":{},\"loss\":{},\"unit_grad_norm\":{{\"embedding\":{},\"block 0\":2}}}}\n", step,
      loss, 10 * step);
}

void read_all(RunMetrics& metrics) {
  while (metrics.read_on()) {
  }
}

}  // namespace

TEST_CASE("run metrics: lines are read as they come, a torn one when it is whole", "[board]") {
  const Site site;
  RunMetrics metrics({.folder = site.home.path()});
  read_all(metrics);
  CHECK(metrics.history().last_step() == -1);
  site.append(line(1, 5.0) + R"({"step":2,"lo)");
  read_all(metrics);
  CHECK(metrics.history().last_step() == 1);
  site.append("ss\":4.5}\n{\"event\":\"evaluation\",\"step\":2,\"val_loss\":4.25}\n");
  read_all(metrics);
  CHECK(metrics.damaged_lines() == 0);
  CHECK(metrics.history().last_step() == 2);
  CHECK(metrics.history().find("loss")->newest == 4.5);
  CHECK(metrics.history().find("val_loss")->newest == 4.25);
  CHECK(metrics.history().find("unit_grad_norm/embedding")->newest == 10.0);
  CHECK(metrics.history().find("step") == nullptr);
}

TEST_CASE("run metrics: a file that was replaced is read anew", "[board]") {
  const Site site;
  site.replace(line(1, 5.0) + line(2, 4.0) + line(3, 3.0));
  RunMetrics metrics({.folder = site.home.path()});
  read_all(metrics);
  const auto version = metrics.version();
  site.replace(line(1, 6.0) + line(2, 5.5));
  read_all(metrics);
  CHECK(metrics.version() > version);
  CHECK(metrics.history().last_step() == 2);
  CHECK(metrics.history().find("loss")->bins.at(1).least == 6.0F);
  fs::remove(site.home / "metrics.jsonl");
  read_all(metrics);
  CHECK(metrics.history().last_step() == -1);
}

TEST_CASE("run metrics: damaged lines are counted and the others are read", "[board]") {
  const Site site;
  site.append(line(1, 5.0));
  const std::string damaged = GENERATE(
      as<std::string>{}, "\n", "{\n", "null\n", "[1,2]\n", "{\"loss\":1}\n", "{\"step\":-3}\n",
      "{\"step\":2,\"loss\":1}{}\n", "{\"step\":\"2\"}\n", std::string("\0\xff\xfe\n", 4));
  site.append(damaged + line(3, 3.0));
  RunMetrics metrics({.folder = site.home.path()});
  read_all(metrics);
  CHECK(metrics.damaged_lines() == 1);
  CHECK(metrics.history().last_step() == 3);
}

TEST_CASE("run metrics: loads of experts are apart from the numbers, however many", "[board]") {
  const Site site;
  std::string layer = "[0,1.5";
  for (int expert = 2; expert < 128; ++expert) {
    layer += ",1.004";
  }
  std::string layers = layer + "]";
  for (int at = 1; at < 48; ++at) {
    layers += "," + layer + "]";
  }
  site.append(line(1, 5.0) + "{\"step\":2,\"loss\":4.5,\"expert_load_max\":1.5,\"expert_load\":[" +
              layers + "]}\n");
  RunMetrics metrics({.folder = site.home.path()});
  read_all(metrics);
  CHECK(metrics.damaged_lines() == 0);
  CHECK(metrics.history().find("expert_load_max")->newest == 1.5);
  CHECK(metrics.history().find("expert_load") == nullptr);
  REQUIRE(metrics.experts().steps().size() == 1);
  const ExpertHistory::Loads& loads = metrics.experts().steps().at(2);
  REQUIRE(loads.size() == 48);
  CHECK(loads.back().size() == 128);
  CHECK(loads.front().at(0) == 0.0F);
  CHECK(loads.back().at(1) == 1.5F);
}

TEST_CASE("run metrics: loads that are none are damage", "[board]") {
  const Site site;
  const std::string loads = GENERATE(as<std::string>{}, "1.5", "{}", "[1,2]", "[[1],2]",
                                     "[[1,\"2\"]]", "[[-1]]", "[[1e300]]", "[[null]]", "[[[1]]]");
  site.append(line(1, 5.0) + "{\"step\":2,\"loss\":4.5,\"expert_load\":" + loads + "}\n" +
              line(3, 3.0));
  RunMetrics metrics({.folder = site.home.path()});
  read_all(metrics);
  CHECK(metrics.damaged_lines() == 1);
  CHECK(metrics.experts().steps().empty());
  CHECK(metrics.history().find("loss")->bins.at(2).count == 0);
  CHECK(metrics.history().last_step() == 3);
}

TEST_CASE("run metrics: a line without end takes no more memory than a piece", "[board]") {
  const Site site;
  site.append(line(1, 5.0) + std::string(3 * storage::LineTail::kPiece, 'x'));
  RunMetrics metrics({.folder = site.home.path()});
  read_all(metrics);
  site.append("\n" + line(2, 4.0));
  read_all(metrics);
  CHECK(metrics.damaged_lines() == 1);
  CHECK(metrics.history().last_step() == 2);
}

TEST_CASE("run metrics: a range holds its own steps alone", "[board]") {
  const Site site;
  for (int step = 1; step <= 5000; ++step) {
    site.append(line(step, step));
  }
  RunMetrics metrics({.folder = site.home.path()}, {.from = 4000, .to = 4100});
  read_all(metrics);
  REQUIRE(metrics.history().width() == 1);
  const auto& bins = metrics.history().find("loss")->bins;
  REQUIRE(bins.size() == 101);
  CHECK(bins.front().sum == 4000.0);
  CHECK(bins.back().sum == 4100.0);
}

}  // namespace train::cli::run_metrics_test
