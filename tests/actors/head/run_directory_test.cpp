#include "actors/head/run_directory.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "configs/load_config.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::actors {
namespace {

/// A run below `directory` whose file has a warm-up of 80 steps.
configs::RunConfig with_warmup(const std::filesystem::path& directory, const std::string& steps) {
  const std::vector<std::string> set = {"run.dir=" + directory.string(), "run.steps=" + steps};
  const auto config = configs::parse_config(
      "[run]\nname = \"a\"\n[model]\narch = \"enoki\"\n[data]\ndir = \"d\"\n"
      "[schedule]\nwarmup_steps = 80\n",
      "x.toml", set);
  REQUIRE(config.ok());
  return *config;
}

}  // namespace

TEST_CASE("run directory: a run whose warm-up was cut is resumed by the same command",
          "[actors][run_directory]") {
  const test::TempDirectory directory;
  const auto open = [&](const std::string& steps) {
    return open_run_directory(with_warmup(directory.path(), steps), /*fresh=*/false);
  };
  REQUIRE(open("50").ok());
  const auto again = open("50");
  REQUIRE(again.ok());
  CHECK(again->existed);
}

TEST_CASE("run directory: a longer run, whose warm-up would be another one, is told which it was",
          "[actors][run_directory]") {
  const test::TempDirectory directory;
  const auto open = [&](const std::string& steps) {
    return open_run_directory(with_warmup(directory.path(), steps), /*fresh=*/false);
  };
  {
    const auto begun = open("50");
    REQUIRE(begun.ok());
    // A step of it was finished: else it would be begun anew.
    std::ofstream(begun->root / "metrics.jsonl") << "{\"step\": 1, \"loss\": 2.5}\n";
  }
  const auto longer = open("1600");
  REQUIRE_FALSE(longer.ok());
  CHECK(longer.error().exit_code() == 2);
  CHECK_THAT(
      longer.error().message,
      Catch::Contains("schedule.warmup_steps was 5 when this run began and is 80 now; set it "
                      "back"));
}

}  // namespace train::actors
