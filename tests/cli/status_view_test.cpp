#include "cli/report/status_view.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "actors/train/boards/rank_board.hpp"
#include "base/process/host_name.hpp"
#include "run/report/run_status.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/processes/process.hpp"

namespace train::cli::status_view_test {
using namespace actors;
using namespace run;
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

/// A run's directory.
struct Site {
  test::TempDirectory home;
  Site() { test::write_bytes(home / "config.toml", "x"); }
  [[nodiscard]] Result<StatusView> read(Surroundings here = surroundings_now()) const {
    return read_status({.folder = home.path()}, here);
  }
};

RunStatus some_status() {
  RunStatus status{.base = {}, .phase = "running", .generation = 2, .ranks = 2};
  status.now_ns = steady_now_ns();
  status.progress = {.step = 40,
                     .tokens_per_second = 1234.56,
                     .window_s = 29.5,
                     .remaining_s = 75.0,
                     .step_ns = status.now_ns - kSecond,
                     .saved_step = 30,
                     .saved_ns = status.now_ns - 9 * kSecond,
                     .saved_directory = "runs/a/checkpoints/step-00000030"};
  RankObserved last{.rank = 0, .pid = 4321, .host = "node7", .command = "TrainStep 41"};
  last.waits = {{"buffers", "gathered weights", kSecond}};
  last.streams = {{"compute", "block 2 (backward) of step 41, lane 1", "", kSecond / 2, false}};
  last.channels = {{.channel = 0,
                    .command = 41,
                    .index = 3,
                    .phase = 3,
                    .what = "gather #3 of TrainStep 41 (block 1)",
                    .age_ns = kSecond}};
  last.credits = {{"lane slots", 2, 4}};
  last.mailboxes = {{"rank", 3, -1}};
  status.heard = {{last, status.now_ns - kSecond / 2}, {std::nullopt, status.now_ns - kSecond}};
  status.waits = {{"conductor", "the ranks to finish a command", kSecond}};
  status.credits = {{"commands", 2, 2}};
  return status;
}

TEST_CASE("status_view: what is written is shown", "[actors][status]") {
  const Site site;
  StatusFile file(site.home.path(), status_base("a", 100));
  RunStatus status = some_status();
  status.stall = Stall{.text = "rank 1 has not been heard of for 6.0 s", .age_ns = 6 * kSecond};
  REQUIRE(file.write(status).ok());
  const auto view = site.read();
  REQUIRE(view.ok());
  CHECK(view->condition == RunCondition::running);
  const std::string text = status_text(*view);
  INFO(text);
  for (const char* part :
       {"run a: running", "step 40 of 100", "1.23 k tokens/s over 29.5s of training, 1m15s left",
        "generation 2, 2 ranks", "saved step 30", "step-00000030",
        "stalled: rank 1 has not been heard of for 6.0 s",
        "conductor  waits for the ranks to finish a command", "held: commands 2/2", "node7",
        "TrainStep 41", "block 2 (backward) of step 41, lane 1 for 1.0 s",
        "gather #3 of TrainStep 41 (block 1): under way for 1.5 s",
        "buffers    waits for gathered weights for 1.5 s", "held: lane slots 2/4",
        "messages waiting: rank 3"}) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
  const auto json = nlohmann::json::parse(status_json(*view));
  CHECK(json.at("condition") == "running");
  CHECK(json.at("ranks").at(0).at("pid") == 4321);
  CHECK(json.at("ranks").at(1).at("heard") == false);
  CHECK(json.at("saved").at("step") == 30);
}

TEST_CASE("status_view: a save that failed is shown beside the one that stands",
          "[actors][status]") {
  const Site site;
  RunStatus status = some_status();
  status.progress.save_failure = "No space left on device";
  REQUIRE(StatusFile(site.home.path(), status_base("a", 100)).write(status).ok());
  const auto view = site.read();
  REQUIRE(view.ok());
  CHECK_THAT(status_text(*view),
             Catch::Contains("saved step 30") &&
                 // The run was started elsewhere: its own path is none from here.
                 Catch::Contains((site.home / "checkpoints/step-00000030").string() + "\n") &&
                 Catch::Contains("the newest save failed: No space left on device"));
}

TEST_CASE("status_view: the end of a run stands, and nothing is written after it",
          "[actors][status]") {
  const Site site;
  StatusFile file(site.home.path(), status_base("a", 100));
  RunStatus end{.base = {}, .phase = "over", .ranks = 1, .now_ns = steady_now_ns()};
  file.set_progress({.step = 100,
                     .tokens_per_second = 9000.0,
                     .window_s = 2.0,
                     .step_ns = end.now_ns,
                     .saved_step = 100,
                     .saved_ns = end.now_ns,
                     .saved_directory = "d"});
  end.outcome = RunFinished{100, 0, "finished at step 100"};
  REQUIRE(file.write(end).ok());
  REQUIRE(file.write(some_status()).ok());
  const std::int64_t ended_s = site.read()->writer.written_unix_s;
  const auto view = site.read({.host = "another", .now_unix_s = ended_s + 7200});
  REQUIRE(view.ok());
  CHECK(view->condition == RunCondition::over);
  // Two hours later, the rate and the time left of the last moments mean nothing.
  CHECK_THAT(status_text(*view, 1500.0),
             Catch::Contains(", 2h00m ago, exit code 0: finished at step 100\n") &&
                 Catch::Contains("step 100 of 100, 1.50 k tokens/s on average; started ") &&
                 Catch::Contains(", 1 rank\n") && Catch::Contains("saved step 100 2h00m ago: d\n"));
  CHECK_THAT(status_text(*view), !Catch::Contains("tokens/s") && !Catch::Contains(" left"));
}

TEST_CASE("status_view: a launcher that is gone is not running", "[actors][status]") {
  const Site site;
  StatusBase base = status_base("a", 100);
  SECTION("its process is gone") {
    test::Process child({"/bin/sh", "-c", "exit 0"});
    base.pid = child.pid();
    child.wait();
  }
  SECTION("another process has its number") { base.process_start += 1; }
  REQUIRE(StatusFile(site.home.path(), base).write(some_status()).ok());
  const auto view = site.read();
  REQUIRE(view.ok());
  CHECK(view->condition == RunCondition::died);
  CHECK_THAT(status_text(*view),
             Catch::Contains("died without a report") && !Catch::Contains(" left"));
}

TEST_CASE("status_view: from another machine silence tells", "[actors][status]") {
  const Site site;
  REQUIRE(StatusFile(site.home.path(), status_base("a", 100)).write(some_status()).ok());
  Surroundings there{.host = "another", .now_unix_s = surroundings_now().now_unix_s + 5};
  CHECK(site.read(there)->condition == RunCondition::running);
  there.now_unix_s += 60;
  const auto view = site.read(there);
  CHECK(view->condition == RunCondition::lost);
  CHECK_THAT(status_text(*view), Catch::Contains("died or cut off"));
}

/// A run of a machine whose clock is `off_s` ahead of this one, from the view of this one.
struct Elsewhere {
  Site site;
  std::int64_t off_s;
  Surroundings here = surroundings_now();
  StatusWatch watch = {};
  int writes = 0;

  explicit Elsewhere(std::int64_t off) : off_s(off) { write(); }
  void write() {
    RunStatus status = some_status();
    status.base = status_base("a", 100);
    status.base.host = "another";
    status.progress.step = ++writes;
    status.now_unix_s = here.now_unix_s + off_s;
    test::write_bytes(site.home / "new", to_json(status));
    std::filesystem::rename(site.home / "new", site.home / "status.json");
  }
  void pass(int seconds) {
    here.now += std::chrono::seconds(seconds);
    here.now_unix_s += seconds;
  }
  [[nodiscard]] StatusView look() {
    auto view = read_status({.folder = site.home.path()}, here, watch);
    REQUIRE(view.ok());
    return *view;
  }
};

TEST_CASE("status_view: whoever watches a run judges by his own clock", "[actors][status]") {
  Elsewhere run(GENERATE(-3600, 0, 3600));
  INFO(run.off_s);
  (void)run.look();
  for (int writes = 0; writes < 5; ++writes) {
    run.pass(10);
    run.write();
    const StatusView view = run.look();
    CHECK(view.condition == RunCondition::running);
    CHECK(view.age_s == 0);
    CHECK_THAT(status_text(view), Catch::Contains("0.0s ago)"));
  }
  run.pass(14);
  CHECK(run.look().condition == RunCondition::running);
  CHECK(run.look().age_s == 14);
  run.pass(1);
  const StatusView lost = run.look();
  CHECK(lost.condition == RunCondition::lost);
  CHECK(lost.age_s >= 15);
  run.write();
  CHECK(run.look().condition == RunCondition::running);  // it was cut off, and is back
}

TEST_CASE("status_view: at first sight the clocks of both machines decide", "[actors][status]") {
  Elsewhere behind(-3600);
  CHECK(behind.look().condition == RunCondition::lost);
  Elsewhere ahead(3600);
  CHECK(ahead.look().condition == RunCondition::running);
  CHECK(ahead.look().age_s == 0);
  ahead.pass(15);
  CHECK(ahead.look().condition == RunCondition::lost);
}

TEST_CASE("status_view: who looks once looks on where the clocks say that a run is lost",
          "[actors][status]") {
  Elsewhere run(GENERATE(-3600, 3600));
  INFO(run.off_s);
  SECTION("it writes") {
    std::atomic<bool> seen = false;
    std::thread writer([&] {
      while (!seen) {
        run.write();
        std::this_thread::yield();
      }
    });
    const auto view = watch_status({.folder = run.site.home.path()}, test::hang_limit);
    seen = true;
    writer.join();
    REQUIRE(view.ok());
    CHECK(view->condition == RunCondition::running);
  }
  SECTION("it does not") {
    const auto view = watch_status({.folder = run.site.home.path()}, std::chrono::milliseconds(1));
    REQUIRE(view.ok());
    CHECK(view->condition == RunCondition::lost);
  }
}

TEST_CASE("status_view: mistakes and damage are one line", "[actors][status]") {
  const Site site;
  const auto check = [&](ErrorKind kind, const std::string& part) {
    const auto view = site.read();
    REQUIRE_FALSE(view.ok());
    INFO(view.error().message);
    CHECK(view.error().kind == kind);
    CHECK(view.error().message.find(part) != std::string::npos);
    CHECK(view.error().message.find('\n') == std::string::npos);
  };
  check(ErrorKind::user, "no status yet");
  const auto path = site.home / "status.json";
  for (const char* damaged : {"", "{", "[]", "{\"format\":\"actortrain\"}"}) {
    test::write_bytes(path, damaged);
    check(ErrorKind::failure, "is not a status of a run");
  }
  test::write_bytes(path, "{\"format\":\"actortrain status\",\"version\":2}");
  check(ErrorKind::user, "version 2");
  for (const char* field :
       {"\"step\":[1]", "\"saved\":{\"step\":\"x\"}", "\"steps\":1e300",
        "\"written_unix_s\":-9223372036854775808", "\"pid\":\"x\"", "\"ranks\":[1]", "\"ranks\":5",
        "\"outcome\":3", "\"stall\":[]", "\"waits\":[{\"who\":1}]"}) {
    INFO(field);
    test::write_bytes(
        path, std::string("{\"format\":\"actortrain status\",\"version\":1,") + field + "}");
    check(ErrorKind::failure, "is damaged");
  }
  for (const std::string& hostile :
       {std::string(300'000, '['), "{\"a\":" + std::string(100'000, '['), std::string("\xff\xfe"),
        "{\"a\":\"" + std::string(100'000, 'x') + "\"}"}) {
    test::write_bytes(path, hostile);
    check(ErrorKind::failure, "is not a status of a run");
  }
  test::write_bytes(path, "");
  std::filesystem::resize_file(path, std::uint64_t{1} << 40U);
  check(ErrorKind::failure, "above its limit of");
  std::filesystem::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  check(ErrorKind::user, "not a regular file");
  std::filesystem::remove(site.home / "config.toml");
  check(ErrorKind::user, "not a run directory");
}

TEST_CASE("status_view: a number that is none is as if it were not there", "[actors][status]") {
  const Site site;
  test::write_bytes(site.home / "status.json",
                    R"({"format":"actortrain status","version":1,"tokens_per_second":null,)"
                    R"("saved":null,"ranks":[{"rank":0,"pid":null}]})");
  const auto view = site.read();
  REQUIRE(view.ok());
  CHECK(nlohmann::json::parse(status_json(*view)).contains("tokens_per_second") == false);
  CHECK_FALSE(status_text(*view).empty());
}

TEST_CASE("status_view: texts that are no UTF-8 do no harm", "[actors][status]") {
  const Site site;
  StatusFile file(site.home.path(), status_base("a", 100));
  RunStatus end{.base = {}, .phase = "over"};
  end.progress.tokens_per_second = std::numeric_limits<double>::quiet_NaN();
  end.outcome = RunFinished{1, 1, std::string("bad \xff\xfe text")};
  REQUIRE(file.write(end).ok());
  const auto view = site.read();
  REQUIRE(view.ok());
  CHECK_THAT(status_text(*view), Catch::Contains("exit code 1: bad "));
}

TEST_CASE("status_file: knows since when a process runs", "[actors][status]") {
  const auto own = process_start(::getpid());
  REQUIRE(own);
  CHECK(*own > 0);
  CHECK(process_start(::getpid()) == own);
  const pid_t ended = ::fork();
  if (ended == 0) {
    ::_exit(0);
  }
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(process_start(ended));  // its parent has not taken notice yet
  REQUIRE(::waitpid(ended, nullptr, 0) == ended);
  CHECK_FALSE(process_start(-5));
  CHECK_FALSE(host_name().empty());
}

}  // namespace
}  // namespace train::cli::status_view_test
