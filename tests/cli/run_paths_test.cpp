#include "cli/checkpoints/run_paths.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/disks/temp_directory.hpp"

namespace train::cli::run_paths_test {

namespace fs = std::filesystem;

configs::RunConfig stored(const std::string& run_dir, const std::string& data) {
  configs::RunConfig config;
  config.run.dir = run_dir;
  config.run.name = "a";
  config.data.dir = data;
  return config;
}

TEST_CASE("run_paths: a relative path begins where the run was started", "[cli][run]") {
  const test::TempDirectory home;
  fs::create_directories(home / "data/x");
  fs::create_directories(home / "model");
  fs::create_directories(home / "runs/deep/a");
  auto config = stored("runs/deep", "data/x");
  config.data.sources = {{.dir = "./data/x"}, {.dir = "gone"}};
  config.data.forget_dir = (home / "data").string();
  config.model.from = "model";
  config.model.config = "smollm2-135m";  // A shipped shape, not a path.
  config.eval.choices = {"gone.jsonl", "model"};
  for (const char* run : {"runs/deep/a", "runs/deep/a/", "runs/./deep/a"}) {
    INFO(run);
    const FoundPaths found = find_paths(config, home / run);
    CHECK(found.config.data.dir == (home / "data/x").string());
    CHECK(found.config.data.sources[0].dir == (home / "data/x").string());
    CHECK(found.config.data.sources[1].dir == "gone");
    CHECK(found.config.data.forget_dir == config.data.forget_dir);
    CHECK(found.config.model.from == (home / "model").string());
    CHECK(found.config.model.config == "smollm2-135m");
    CHECK(found.config.eval.choices ==
          std::vector<std::string>{"gone.jsonl", (home / "model").string()});
    CHECK(fs::path(found.config.run.dir) / found.config.run.name == home / "runs/deep/a");
    CHECK(found.notes.empty());
    CHECK_THAT(found.missing, Catch::Contains("data.sources = \"gone\": no such directory in " +
                                              home.path().string() + ", where the run was"));
  }
}

TEST_CASE("run_paths: a run that --fresh has set aside was started in the same place",
          "[cli][run]") {
  const test::TempDirectory home;
  fs::create_directories(home / "data");
  fs::create_directories(home / "runs/a-2");
  const FoundPaths found = find_paths(stored("runs", "data"), home / "runs/a-2");
  CHECK(found.config.data.dir == (home / "data").string());
  CHECK(found.config.run.name == "a-2");
  CHECK(found.missing.empty());
}

TEST_CASE("run_paths: a run whose directory does not say where it was started is read from here",
          "[cli][run]") {
  const test::TempDirectory home;
  fs::create_directories(home / "data");
  fs::create_directories(home / "other/a");
  for (const std::string& run_dir :
       {home.path().string(), std::string("runs"), std::string("../other")}) {
    INFO(run_dir);
    const FoundPaths found = find_paths(stored(run_dir, "data/none"), home / "other/a");
    CHECK(found.config.data.dir == "data/none");
    CHECK_THAT(found.missing, Catch::Contains("data.dir = \"data/none\": no such directory here") &&
                                  Catch::Contains("call this command there"));
  }
  CHECK(find_paths(stored("runs", (home / "none").string()), home / "other/a").missing.empty());
}

}  // namespace train::cli::run_paths_test
