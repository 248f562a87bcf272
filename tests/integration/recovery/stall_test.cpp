// A run that stands still says why within seconds, and goes on when the world lets it; `actortrain
// status` shows the same from outside. Real processes, real signals.

#include "tests/integration/sites/endless_run.hpp"
#include "tests/integration/sites/held_runs.hpp"
#include "tests/integration/table_end.hpp"

using namespace train::test;

namespace {

Words endless(int ranks, const Words& more = {}) {
  return rank_keys(ranks, "full",
                   joined({"run.steps=1000000", "eval.interval_steps=0", "watchdog.stall_s=1",
                           "checkpoint.interval_steps=0", "recovery.rank_loss=stop"},
                          more));
}

nlohmann::json status_of(const RunSite& site) {
  const Ended ended = site.call({"status", "runs/tiny", "--json"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return nlohmann::json::parse(ended.out);
}

/// Waits until the status of the run fulfils `condition`.
template <class Condition>
bool status_comes(const RunSite& site, Process& launcher, Condition condition) {
  return launcher.until(
      [&] { return fs::exists(site.run() / "status.json") && condition(status_of(site)); });
}

/// Waits until the run says of a stall what fulfils `condition`. Not always in the first event: a
/// machine that stands still for a second is a stall, too.
template <class Condition>
void wait_for_stall(const RunSite& site, Process& launcher, Condition condition) {
  const bool said = launcher.until([&] {
    const auto stalls = events_of(site.run(), "stalled");
    return std::any_of(stalls.begin(), stalls.end(),
                       [&](const nlohmann::json& stall) { return condition(stall.at("text")); });
  });
  INFO(launcher.err());
  REQUIRE(said);
}

}  // namespace

TEST_CASE("stall: a wedged kernel is named with its rank, layer and step, and the run goes on",
          "[integration][.full][ranks][stall][P2]") {
  const RunSite site;
  const auto launcher = start_held(site, "1", 10, endless(3));
  wait_for_stall(site, *launcher, [](const std::string& text) {
    // Who waits for it may have been heard of too late for the event, which is told once.
    return has(text, ": in block 0 (backward attention) of step 5, lane 1 for ");
  });
  REQUIRE(status_comes(site, *launcher, [](const nlohmann::json& status) {
    return status.contains("stall") && status.at("condition") == "running" &&
           status.at("step") == 4 && has(status.at("stall").at("text"), " waits for ") &&
           has(status.at("stall").at("text"),
               ", rank 1 prepares it: in block 0 (backward attention) of step 5, lane 1 for ");
  }));
  let_go(site);
  wait_for_event(site, *launcher, "stall_over");
  REQUIRE(status_comes(site, *launcher, [](const nlohmann::json& later) {
    return !later.contains("stall") && later.at("step") > 10;
  }));
  launcher->send(SIGTERM);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
}

TEST_CASE("stall: one rank alone is watched as well", "[integration][.full][stall]") {
  const RunSite site;
  const auto launcher = start_held(site, "head", 9, {"run.steps=1000000", "watchdog.stall_s=1"});
  wait_for_stall(site, *launcher, [](const std::string& text) {
    return has(text, "the conductor waits for rank 0: in block 1 (backward attention) of ");
  });
  let_go(site);
  wait_for_event(site, *launcher, "stall_over");
}

TEST_CASE("stall: a stopped rank is named as silent and lost, and the run goes on to the same bits",
          "[integration][.full][ranks][stall][recovery][P1][P2][P4]") {
  const RunSite site;
  const Words keys = endless(
      3, {"watchdog.stall_s=5", "recovery.rank_loss=respawn", "run.digest_interval_steps=1"});
  const auto launcher = site.start_run(keys);
  const auto workers = started_workers(site, *launcher, 3);
  wait_for_step(site, *launcher, 1);
  REQUIRE(status_comes(site, *launcher, [](const nlohmann::json& status) {
    return status.at("ranks").size() == 3 && status.at("ranks").at(1).at("heard") == true;
  }));
  REQUIRE(::kill(workers.at(1), SIGSTOP) == 0);
  wait_for_stall(site, *launcher, [](const std::string& text) {  // before its loss or with it
    return has(text, "rank 1 has not been heard of for ");
  });
  wait_for_event(site, *launcher, "rank_lost");
  const std::int64_t furthest = last_step(site.run());
  wait_for_step(site, *launcher, furthest + 3);
  const Ended ended = stopped(*launcher);
  check_lost_as(
      {end_of({.in = HeadState::training,
               .events = {HeadEvent::rank_missed, HeadEvent::cause_time_over},
               .words = {.rank = 1, .text = "its process is gone or cannot be reached"}})},
      ended.err);
  CHECK(workers_of(site.path()).empty());
  UnbrokenRun(keys).check_same(site.run(), furthest + 3);
}

TEST_CASE("status: of a run that trains, has ended, and was killed",
          "[integration][.full][ranks][status]") {
  const RunSite site;
  const auto launcher = site.start_run(endless(2, {"checkpoint.interval_steps=5"}));
  const auto workers = started_workers(site, *launcher, 2);
  REQUIRE(status_comes(site, *launcher, [](const nlohmann::json& status) {
    return status.at("step") > 5 && status.at("saved").contains("step") &&
           status.at("ranks").size() == 2 && status.at("ranks").at(0).at("heard") == true &&
           status.at("ranks").at(1).at("heard") == true;
  }));
  const auto status = status_of(site);
  CHECK(status.at("pid") == launcher->pid());
  CHECK(status.at("condition") == "running");
  CHECK(status.at("tokens_per_second") > 0);
  for (const int rank : {0, 1}) {
    CHECK(status.at("ranks").at(static_cast<std::size_t>(rank)).at("pid") == workers.at(rank));
  }
  Ended table;
  REQUIRE(comes_true([&] {  // a rank may be between two commands
    table = site.call({"status", "runs/tiny"});
    return has(table.out, "TrainStep ");
  }));
  CHECK(table.exit_code == 0);
  for (const char* part : {"run tiny: running", "of 1000000", "saved step "}) {
    INFO(table.out << part);
    CHECK(has(table.out, part));
  }
  launcher->send(SIGKILL);
  CHECK(launcher->wait().signal == SIGKILL);
  CHECK(status_of(site).at("condition") == "died");
  CHECK(has(site.call({"status", "runs/tiny"}).out, "died without a report"));
  CHECK(comes_true([&] { return workers_of(site.path()).empty(); }));
  const auto again = site.start_run(endless(2));
  REQUIRE(status_comes(
      site, *again, [](const nlohmann::json& next) { return next.at("condition") == "running"; }));
  again->send(SIGTERM);
  CHECK(again->wait().exit_code == 75);
  const auto over = status_of(site);
  CHECK(over.at("condition") == "over");
  CHECK(over.at("outcome").at("exit_code") == 75);
  CHECK(has(site.call({"status", "runs/tiny"}).out, "ago, exit code 75: stopped by signal 15"));
}

TEST_CASE("status: mistakes are one line", "[integration][status][mistakes]") {
  const RunSite site;
  check_mistake(site, {"status", "runs/none"}, {"runs/none", "no such directory"});
  fs::create_directories(site.run());
  write_bytes(site.run() / "config.toml", "x");
  check_mistake(site, {"status", "runs/tiny"}, {"status.json", "no status yet"});
  check_mistake(site, {"status"}, {"run_directory", "--help"});
}
