// What the world does to a run in processes. A lost rank ends the run within a second, and says
// which it was; nothing is left running; the next start goes on.

#include <functional>

#include "tests/integration/sites/held_runs.hpp"
#include "tests/integration/table_end.hpp"

using namespace train::test;

namespace {

const Words kEndlessRanks = {"run.steps=1000000", "batch.micro_batch=1",
                             "checkpoint.interval_steps=1", "checkpoint.keep_last=2",
                             "recovery.rank_loss=stop"};

// The end of a launcher whose rank `rank` has just been killed.
void check_lost_rank(const RunSite& site, Process& launcher, int rank, const char* moment) {
  const Ended ended = launcher.wait();
  INFO(moment << ": " << ended.err);
  check_ends_as(end_of({.in = HeadState::training,
                        .events = {HeadEvent::rank_lost},
                        .words = {.rank = rank, .text = "*"},
                        .killed_by = SIGKILL}),
                ended);
  CHECK(workers_of(site.path()).empty());
}

// The same command resumes from the newest checkpoint, trains, and stops in good order.
void check_goes_on(const RunSite& site, const Words& keys) {
  const auto steps = fs::exists(site.run() / "checkpoints") ? checkpoint_steps(site.run())
                                                            : std::vector<std::int64_t>{};
  const std::int64_t from = steps.empty() ? 0 : steps.back();
  const std::int64_t furthest = last_step(site.run());
  const auto launcher = start_patient_run(site, keys);
  wait_for_step(site, *launcher, furthest + 1);
  launcher->send(SIGTERM);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  CHECK((from == 0 || has(ended.err, fmt::format("resumed step={} ", from))));
  CHECK_FALSE(has(ended.err, "set_aside"));  // what has a checkpoint's name is whole
  CHECK(newest_checkpoint(site.run()) == last_step(site.run()));
}

/// Waits until the run stands still and says in its status that the rank, which is stopped, is
/// silent. The event of a stall may have told of another cause, and tells of none twice.
void wait_for_silence(const RunSite& site, Process& launcher, int rank) {
  const fs::path file = site.run() / "status.json";
  const std::string silent = fmt::format("rank {} has not been heard of", rank);
  const bool said = launcher.until([&] {
    const auto status =
        nlohmann::json::parse(fs::exists(file) ? read_bytes(file) : "{}", nullptr, false);
    return status.contains("stall") && has(status.at("stall").at("text"), silent);
  });
  INFO(launcher.err());
  REQUIRE(said);
}

struct Moment {
  const char* name;
  int rank;
  /// Of the environment: where the rank is held or kills itself.
  Words variables;
  std::function<void(const RunSite&, Process&)> kill;
};

}  // namespace

TEST_CASE("ranks: kill -9 of a worker ends the run at once and names it; the next start goes on",
          "[integration][ranks][failure][P3]") {
  const auto kill = [](int rank) {
    return [rank](const RunSite& site, Process& launcher) {
      REQUIRE(::kill(started_workers(site, launcher, 2).at(rank), SIGKILL) == 0);
    };
  };
  const auto kill_in_training = [&](const RunSite& site, Process& launcher) {
    wait_for_step(site, launcher, 1);
    kill(1)(site, launcher);
  };
  const auto kill_held = [&](const RunSite& site, Process& launcher) {
    REQUIRE(launcher.until([&] { return fs::exists(site / "held"); }));
    kill(0)(site, launcher);
  };
  const Moment moments[] = {
      {"right after its start", 1, {}, kill(1)},
      {"in training", 1, {}, kill_in_training},
      // Of two blocks for each of its lanes, before the first step.
      {"in an evaluation",
       0,
       {"ACTORTRAIN_TEST_FAULT=forward:2:0", "ACTORTRAIN_TEST_WEDGE=wedge",
        "ACTORTRAIN_TEST_FAULT_STAMP=held"},
       kill_held},
      {"while saving", 0, {"ACTORTRAIN_TEST_KILL=before:write:2:0"}, [](const RunSite&, Process&) {
       }}};
  for (const Moment& moment : moments) {
    const RunSite site;
    const Words keys = rank_keys(2, "full", kEndlessRanks);
    write_bytes(site / "wedge", "");
    const auto launcher = std::make_unique<Process>(
        joined(joined({"/usr/bin/env", kPatient}, moment.variables),
               joined({moment.variables.empty() ? program() : faulty_program()},
                      RunSite::run_words(keys))),
        site.path());
    moment.kill(site, *launcher);
    check_lost_rank(site, *launcher, moment.rank, moment.name);
    if (moment.rank == 1) {
      check_goes_on(site, keys);
    }
  }
}

TEST_CASE("ranks: a worker that is stopped and then killed is a lost rank",
          "[integration][.full][ranks][failure]") {
  const RunSite site;
  const auto launcher = start_patient_run(
      site, rank_keys(3, "gradient", joined(kEndlessRanks, {"watchdog.stall_s=1"})));
  const auto workers = started_workers(site, *launcher, 3);
  wait_for_step(site, *launcher, 1);
  REQUIRE(::kill(workers.at(2), SIGSTOP) == 0);
  wait_for_silence(site, *launcher, 2);
  CHECK(count_events(site.run(), "rank_lost") == 0);  // slow is not dead
  REQUIRE(::kill(workers.at(2), SIGKILL) == 0);
  check_lost_rank(site, *launcher, 2, "while stopped");
}

TEST_CASE("ranks: a stopped worker that goes on loses nothing", "[integration][.full][ranks][P1]") {
  const RunSite site;
  const Words keys = {"run.steps=12", "run.digest_interval_steps=1"};
  const auto launcher =
      start_held(site, "1", 21, rank_keys(2, "full", joined(keys, {"watchdog.stall_s=1"})));
  const auto workers = started_workers(site, *launcher, 2);
  wait_for_step(site, *launcher, 1);
  REQUIRE(::kill(workers.at(0), SIGSTOP) == 0);
  let_go(site);
  wait_for_silence(site, *launcher, 0);
  REQUIRE(::kill(workers.at(0), SIGCONT) == 0);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(count_events(site.run(), "rank_lost") == 0);
  site.train(joined(keys, {"run.name=one"}));
  CHECK(results_of(site.run()) == results_of(site.run("one")));
}

TEST_CASE("ranks: what one rank finds wrong in the data is said once",
          "[integration][ranks][mistakes]") {
  const RunSite site;
  std::string tokens(8000, '\0');
  tokens[5000] = '\1';  // token 2500 is 257, and only the rank that gets there sees it
  tokens[5001] = '\1';
  write_tokens(site, tokens);
  const Ended ended = site.call(site.run_words(
      rank_keys(3, "full", {"model.vocab_size=257", "eval.interval_steps=0", "run.steps=1000"})));
  INFO(ended.err);
  check_ends_as(end_of({.in = HeadState::training,
                        .events = {HeadEvent::rank_mistaken},
                        .words = {.rank = 2, .text = "*data/train.bin*"}}),
                ended);
  CHECK(has(first_error(ended), "token 257 at position 2500"));
  CHECK(last_of(lines_of(ended.err)) == "error " + first_error(ended));
  CHECK(workers_of(site.path()).empty());
}

TEST_CASE("ranks: workers do not outlive their launcher", "[integration][.full][ranks][failure]") {
  const RunSite site;
  const auto launcher = site.start_run(rank_keys(3, "full", kEndlessRanks));
  started_workers(site, *launcher, 3);
  if (GENERATE(false, true)) {  // while they join, or while they train
    wait_for_step(site, *launcher, 1);
  }
  launcher->send(SIGKILL);
  CHECK(comes_true([&] { return workers_of(site.path()).empty(); }));
  CHECK(launcher->wait().signal == SIGKILL);
}

TEST_CASE("ranks: SIGTERM and SIGINT save and say 75, whoever receives them",
          "[integration][.full][ranks][resume][P1]") {
  const RunSite site;
  for (const int signal : {SIGTERM, SIGINT}) {
    for (const bool to_group : {false, true}) {
      const std::int64_t done = last_step(site.run());
      const auto launcher =
          site.start(RunSite::run_words(rank_keys(2, "full", kEndlessRanks)), Process::Group::own);
      started_workers(site, *launcher, 2);
      wait_for_step(site, *launcher, done + 1);
      REQUIRE(::kill(to_group ? -launcher->pid() : launcher->pid(), signal) == 0);
      const Ended ended = launcher->wait();
      INFO(fmt::format("signal {}, to the group {}: {}", signal, to_group, ended.err));
      CHECK(ended.exit_code == 75);
      CHECK(has(ended.err, "run it again"));
      CHECK_FALSE(has(ended.err, "error"));
      for (const std::string& line : lines_of(ended.err)) {
        CHECK((!line.starts_with("warning ") || line.starts_with("warning many_epochs ")));
      }
      REQUIRE(newest_checkpoint(site.run()) == last_step(site.run()));
      CHECK(last_step(site.run()) > done);
      CHECK(workers_of(site.path()).empty());
    }
  }
}

TEST_CASE("ranks: SIGTERM while workers start ends the run in good order",
          "[integration][.full][ranks][resume]") {
  const RunSite site;
  const auto launcher = site.start_run(rank_keys(3, "full", kEndlessRanks));
  started_workers(site, *launcher, 3);
  launcher->send(SIGTERM);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  const TableEnd end = end_of(
      {.in = HeadState::starting, .events = {HeadEvent::signal}, .words = {.signal = SIGTERM}});
  CHECK(ended.exit_code == end.exit_code);
  CHECK((has(ended.err, "run_finished " + end.line) || last_step(site.run()) > 0));
  CHECK_FALSE(has(ended.err, "error"));
  CHECK(workers_of(site.path()).empty());
}
