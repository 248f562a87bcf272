// What the world does to a run in processes. A lost rank ends the run within a second, and says
// which it was; nothing is left running; the next start goes on.

#include <functional>

#include "tests/integration/held_runs.hpp"
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
  const auto launcher = site.start_run(keys);
  wait_for_output(*launcher, fmt::format("step {}/", from + 1));
  launcher->send(SIGTERM);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  CHECK((from == 0 || has(ended.err, fmt::format("resumed step={} ", from))));
  CHECK_FALSE(has(ended.err, "set_aside"));  // what has a checkpoint's name is whole
  CHECK(checkpoint_steps(site.run()).back() == last_step(site.run()));
}

bool being_saved(const RunSite& site) {
  std::error_code ignored;
  for (fs::directory_iterator entry(site.run() / "checkpoints", ignored), end;
       !ignored && entry != end; entry.increment(ignored)) {
    if (entry->path().filename().string().starts_with(".incoming")) {
      return true;
    }
  }
  return false;
}

struct Moment {
  const char* name;
  int rank;
  Words keys;
  std::function<bool(const RunSite&, Process&)> reached;
};

}  // namespace

TEST_CASE("ranks: kill -9 of a worker ends the run at once and names it; the next start goes on",
          "[integration][ranks][failure][P3]") {
  const auto trains = [](const RunSite&, Process& launcher) {
    return has(launcher.out(), "step 1/");
  };
  const Moment moments[] = {
      {"right after its start", 1, {}, [](const RunSite&, Process&) { return true; }},
      {"in training", 1, {"checkpoint.interval_steps=7"}, trains},
      {"in an evaluation", 0, {"eval.interval_steps=1", "eval.lanes=3000"}, trains},
      {"while saving",
       0,
       {"model.layers=8", "model.head_dim=32"},
       [&](const RunSite& site, Process&) { return being_saved(site); }}};
  for (const Moment& moment : moments) {
    const RunSite site;
    const Words keys = rank_keys(2, "full", joined(kEndlessRanks, moment.keys));
    const auto launcher = site.start_run(keys);
    const auto workers = started_workers(site, *launcher, 2);
    INFO(moment.name << launcher->err());
    REQUIRE(launcher->until([&] { return moment.reached(site, *launcher); }));
    REQUIRE(::kill(workers.at(moment.rank), SIGKILL) == 0);
    check_lost_rank(site, *launcher, moment.rank, moment.name);
    if (moment.rank == 1) {
      check_goes_on(site, keys);
    }
  }
}

TEST_CASE("ranks: a worker that is stopped and then killed is a lost rank",
          "[integration][.full][ranks][failure]") {
  const RunSite site;
  const auto launcher = site.start_run(rank_keys(3, "gradient", kEndlessRanks));
  const auto workers = started_workers(site, *launcher, 3);
  wait_for_output(*launcher, "step 1/");
  REQUIRE(::kill(workers.at(2), SIGSTOP) == 0);
  const auto stopped = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const bool running = launcher->running();
  if (elapsed_ms(stopped) > 3000) {
    WARN("skipped: this machine stood still for as long as makes a silent rank a lost one");
    return;
  }
  CHECK(running);  // slow is not dead
  REQUIRE(::kill(workers.at(2), SIGKILL) == 0);
  check_lost_rank(site, *launcher, 2, "while stopped");
}

TEST_CASE("ranks: a stopped worker that goes on loses nothing", "[integration][.full][ranks][P1]") {
  const RunSite site;
  const Words keys = {"run.steps=60", "run.digest_interval_steps=1"};
  const auto launcher = start_held(site, "1", 21, rank_keys(2, "full", keys));
  const auto workers = started_workers(site, *launcher, 2);
  wait_for_output(*launcher, "step 1/");
  REQUIRE(::kill(workers.at(0), SIGSTOP) == 0);
  let_go(site);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  REQUIRE(::kill(workers.at(0), SIGCONT) == 0);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
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
  CHECK(lines_of(ended.err).back() == "error " + first_error(ended));
  CHECK(workers_of(site.path()).empty());
}

TEST_CASE("ranks: workers do not outlive their launcher", "[integration][.full][ranks][failure]") {
  const RunSite site;
  const auto launcher = site.start_run(rank_keys(3, "full", kEndlessRanks));
  started_workers(site, *launcher, 3);
  if (GENERATE(false, true)) {  // while they join, or while they train
    wait_for_output(*launcher, "step 1/");
  }
  launcher->send(SIGKILL);
  CHECK(comes_true([&] { return workers_of(site.path()).empty(); }));
  CHECK(launcher->wait().signal == SIGKILL);
}

TEST_CASE("ranks: SIGTERM and SIGINT save and say 75, whoever receives them",
          "[integration][.full][ranks][resume][P1]") {
  const RunSite site;
  int stops = 0;
  for (const int signal : {SIGTERM, SIGINT}) {
    for (const bool to_group : {false, true}) {
      const std::int64_t done = stops++ == 0 ? 0 : checkpoint_steps(site.run()).back();
      const auto launcher =
          site.start(RunSite::run_words(rank_keys(2, "full", kEndlessRanks)), Process::Group::own);
      started_workers(site, *launcher, 2);
      wait_for_output(*launcher, fmt::format("step {}/", done + 1));
      REQUIRE(::kill(to_group ? -launcher->pid() : launcher->pid(), signal) == 0);
      const Ended ended = launcher->wait();
      INFO(fmt::format("signal {}, to the group {}: {}", signal, to_group, ended.err));
      CHECK(ended.exit_code == 75);
      CHECK(has(ended.err, "run it again"));
      CHECK_FALSE(has(ended.err, "error"));
      CHECK_FALSE(has(ended.err, "warning"));
      REQUIRE(checkpoint_steps(site.run()).back() == last_step(site.run()));
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
  CHECK((has(ended.err, "run_finished " + end.line) || has(ended.out, "step 1/")));
  CHECK_FALSE(has(ended.err, "error"));
  CHECK(workers_of(site.path()).empty());
}
