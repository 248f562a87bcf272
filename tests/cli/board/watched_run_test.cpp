#include "cli/board/watched_run.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/disks/temp_directory.hpp"

namespace train::cli::watched_run_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json checkpoints_of(WatchedRun& run, int later_s) {
  Surroundings here = surroundings_now();
  here.now += std::chrono::seconds(later_s);  // Past the rest after a slow look.
  run.look(here);
  return Json::parse(run.status_json()).at("checkpoints");
}

TEST_CASE("watched run: checkpoints in place are listed", "[board]") {
  const test::TempDirectory home;
  const fs::path checkpoints = home / "runs/a/checkpoints";
  for (const char* name : {"step-00000200", "step-00000100", "damaged-step-00000050", ".new"}) {
    fs::create_directories(checkpoints / name);
  }
  // Otherwise both changes could be in one tick of the file system's clock.
  fs::last_write_time(checkpoints, fs::file_time_type::clock::now() - std::chrono::hours(1));
  WatchedRun run({.folder = home / "runs", .below = "a"});
  CHECK(checkpoints_of(run, 0) == Json({100, 200}));
  fs::remove(checkpoints / "step-00000100");
  CHECK(checkpoints_of(run, 3600) == Json(std::vector<int>{200}));
}

TEST_CASE("watched run: each checkpoint has the loss of its own step, and one is the best",
          "[board]") {
  const test::TempDirectory home;
  for (const char* name : {"step-00000100", "step-00000200", "step-00000250", "step-00000300"}) {
    fs::create_directories(home / "runs/a/checkpoints" / name);
  }
  test::write_bytes(home / "runs/a/metrics.jsonl",
                    "{\"event\":\"evaluation\",\"step\":50,\"val_loss\":0.5}\n"
                    "{\"event\":\"evaluation\",\"step\":100,\"val_loss\":3}\n"
                    "{\"event\":\"evaluation\",\"step\":200,\"val_loss\":2}\n"
                    "{\"event\":\"evaluation\",\"step\":300,\"val_loss\":2}\n");
  WatchedRun run({.folder = home / "runs", .below = "a"});
  CHECK(checkpoints_of(run, 0) == Json({100, 200, 250, 300}));
  CHECK_FALSE(Json::parse(run.status_json()).contains("best_checkpoint"));
  while (run.read_metrics()) {
  }
  CHECK(checkpoints_of(run, 3600) == Json({100, 200, 250, 300}));
  const Json status = Json::parse(run.status_json());
  CHECK(status["validation_losses"] == Json({3.0, 2.0, nullptr, 2.0}));
  CHECK(status["best_checkpoint"] == 200);
}

TEST_CASE("watched run: numbers of steps that were taken back are not shown", "[board]") {
  const test::TempDirectory home;
  const fs::path file = home / "runs/a/metrics.jsonl";
  fs::create_directories(file.parent_path());
  test::write_bytes(file,
                    "{\"step\":2,\"loss\":4.5}\n"
                    "{\"event\":\"evaluation\",\"step\":2,\"val_loss\":3}\n");
  WatchedRun run({.folder = home / "runs", .below = "a"});
  (void)checkpoints_of(run, 0);
  CHECK(Json::parse(run.summary_json())["val_loss"] == 3.0);
  test::write_bytes(file, "{\"step\":1,\"loss\":5}\n");
  (void)checkpoints_of(run, 3600);
  CHECK(Json::parse(run.summary_json())["loss"] == 5.0);
  CHECK(Json::parse(run.summary_json())["val_loss"].is_null());
}

TEST_CASE("watched run: no checkpoints are listed behind a link out of the folder", "[board]") {
  const test::TempDirectory home;
  fs::create_directories(home / "private/step-00000100");
  fs::create_directories(home / "runs/a");
  fs::create_directory_symlink(home / "private", home / "runs/a/checkpoints");
  WatchedRun run({.folder = home / "runs", .below = "a"});
  CHECK(checkpoints_of(run, 0) == Json::array());
}

}  // namespace
}  // namespace train::cli::watched_run_test
