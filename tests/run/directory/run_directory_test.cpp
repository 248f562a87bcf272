#include "run/directory/run_directory.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "configs/load_config.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::run {
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
          "[run][run_directory]") {
  const test::TempDirectory directory;
  const auto open = [&](const std::string& steps) {
    return open_run_directory(with_warmup(directory.path(), steps), /*fresh=*/false);
  };
  REQUIRE(open("50").ok());
  const auto again = open("50");
  REQUIRE(again.ok());
  CHECK(again->existed);
}

TEST_CASE("run directory: a warm-up that follows the length is no change of its own",
          "[run][run_directory]") {
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
  const auto longer = open("1600");  // The file says 80 both times; 5 was its tenth of 50 steps.
  REQUIRE(longer.ok());
  REQUIRE(longer->changes.size() == 2);
  CHECK(longer->changes[1].path == "schedule.warmup_steps");
  CHECK(longer->changes[1].follows_length);
}

TEST_CASE("run directory: --fresh sets the earlier run aside, whose name it then has",
          "[run][run_directory]") {
  const test::TempDirectory directory;
  const auto config = with_warmup(directory.path(), "100");
  for (int run = 1; run <= 3; ++run) {
    const auto begun = open_run_directory(config, /*fresh=*/true);
    REQUIRE(begun.ok());
    CHECK(begun->root == directory.path() / "a");
    CHECK_FALSE(begun->existed);
    CHECK(begun->set_aside ==
          (run == 1 ? std::filesystem::path() : directory.path() / fmt::format("a-{}", run)));
    std::ofstream(begun->root / "mark") << run;
  }
  for (int run = 1; run <= 2; ++run) {
    const auto aside = directory.path() / fmt::format("a-{}", run + 1);
    std::ifstream mark(aside / "mark");
    int found = 0;
    mark >> found;
    CHECK(found == run);
    CHECK(configs::load_config((aside / "config.toml").string())->run.name ==
          aside.filename().string());
  }
  const auto used = open_run_directory(config, /*fresh=*/false);
  REQUIRE(used.ok());
  const auto refused = open_run_directory(config, /*fresh=*/true);  // Of a run that is in use.
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().exit_code() == 2);
}

namespace {

/// A run with `before` that has finished a step is opened with `now`.
Result<RunDirectory> open_changed(const std::filesystem::path& directory,
                                  const std::vector<std::string>& before,
                                  const std::vector<std::string>& now,
                                  const std::vector<std::string>& accepted = {}) {
  const auto config_of = [&directory](std::vector<std::string> set) {
    set.push_back("run.dir=" + directory.string());
    const auto config = configs::parse_config(
        "[run]\nname = \"a\"\n[model]\narch = \"enoki\"\n[data]\ndir = \"d\"\n", "x.toml", set);
    REQUIRE(config.ok());
    return *config;
  };
  {
    const auto begun = open_run_directory(config_of(before), /*fresh=*/false);
    REQUIRE(begun.ok());
    CHECK(begun->changes.empty());
    std::ofstream(begun->root / "metrics.jsonl") << "{\"step\": 1, \"loss\": 2.5}\n";
  }
  return open_run_directory(config_of(now), /*fresh=*/false, accepted);
}

}  // namespace

TEST_CASE("run directory: a key that decides the result is named with both values and the way out",
          "[run][run_directory]") {
  struct Change {
    std::vector<std::string> before, now;
    std::string said;
  };
  const std::vector<Change> changes = {
      {{"objective.name=dpo"},
       {"objective.name=simpo"},
       "objective.name was \"dpo\" when this run "
       "began and is \"simpo\" now"},
      {{"objective.name=sft"},
       {"objective.name=sft", "objective.label_smoothing=0.5"},
       "objective.label_smoothing was 0.0 when this run began and is 0.5 now"},
      {{"lora.rank=4"},
       {"lora.rank=4", "lora.alpha=256"},
       "lora.alpha was 16.0 when this run began "
       "and is 256.0 now"},
      {{},
       {"train.freeze=head", "run.steps=7"},
       "train.freeze was [] when this run began and is "
       "[\"head\"] now"},
  };
  for (const Change& change : changes) {
    const test::TempDirectory directory;
    const auto opened = open_changed(directory.path(), change.before, change.now);
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().exit_code() == 2);
    const std::string& text = opened.error().message;
    CHECK(text.starts_with((directory.path() / "a" / "config.toml").string() + ": " + change.said +
                           "; set it back, "));
    CHECK(text.ends_with("choose another run.name, or start anew with --fresh"));
  }
}

TEST_CASE("run directory: a key that later updates alone depend on changes if it is accepted",
          "[run][run_directory]") {
  const std::vector<std::string> now = {"optimizer.lr=0.5"};
  {
    const test::TempDirectory directory;
    const auto refused = open_changed(directory.path(), {}, now, {"optimizer.eps"});
    REQUIRE_FALSE(refused.ok());
    CHECK_THAT(refused.error().message,
               Catch::EndsWith("optimizer.lr was 0.001 when this run began and is 0.5 now; set it "
                               "back, train on with it by --accept-config optimizer.lr, choose "
                               "another run.name, or start anew with --fresh"));
  }
  const test::TempDirectory directory;
  const auto opened = open_changed(directory.path(), {}, now, {"optimizer.lr"});
  REQUIRE(opened.ok());
  REQUIRE(opened->changes.size() == 1);
  CHECK(opened->changes[0].path == "optimizer.lr");
}

TEST_CASE("run directory: keys that may change are listed", "[run][run_directory]") {
  const test::TempDirectory directory;
  const auto opened = open_changed(directory.path(), {}, {"run.steps=7", "parallel.ranks=2"});
  REQUIRE(opened.ok());
  REQUIRE(opened->changes.size() == 2);
  CHECK(opened->changes[0].path == "run.steps");
  CHECK(opened->changes[0].before == "1000");
  CHECK(opened->changes[1].path == "parallel.ranks");
  CHECK(opened->changes[1].now == "2");
}

}  // namespace train::run
