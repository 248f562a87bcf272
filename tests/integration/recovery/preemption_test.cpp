// Signals that ask to stop, to the launcher or to all processes of the job, in every phase of a run
// in processes and at random events: the run says 75, what it has done is saved, and the same
// command goes on to the bits of the run that nothing disturbed. ACTORTRAIN_SOAK=n goes on n times
// as long.

#include <array>
#include <fstream>
#include <functional>
#include <random>

#include "tests/integration/sites/endless_run.hpp"
#include "tests/integration/sites/killed_runs.hpp"

using namespace train::test;

namespace {

// Evaluations and saves take their share of the time.
Words preempted_keys(const Words& more = {}) {
  return joined(
      killed_run_keys(4, joined({"eval.interval_steps=25", "eval.lanes=24",
                                 "checkpoint.interval_steps=10", "checkpoint.keep_last=2"},
                                {kEndless})),
      more);
}

UnbrokenRun& unstopped_run() {
  static UnbrokenRun run(preempted_keys());
  return run;
}

constexpr std::array kSignals = {SIGTERM, SIGUSR1, SIGHUP, SIGUSR2, SIGXCPU};

/// main() has begun: before it blocks them, signals end the process, which has done nothing yet.
bool blocks_signals(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigBlk:")) {
      return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1U) != 0;
    }
  }
  return false;
}

/// A run that is preempted again and again.
class PreemptedRun {
 public:
  [[nodiscard]] const RunSite& site() const { return site_; }

  [[nodiscard]] std::unique_ptr<Process> start(const Words& variables = {},
                                               const Words& more = {}) const {
    Words words = joined({"/usr/bin/env", kPatient}, variables);
    words.emplace_back(variables.empty() ? program() : faulty_program());
    return std::make_unique<Process>(joined(words, RunSite::run_words(preempted_keys(more))),
                                     site_.path(), Process::Group::own);
  }

  /// What must be true when a start that was signalled has ended.
  void check_stopped(Process& process, const std::string& when) const {
    const Ended ended = process.wait();
    INFO(when << "; stderr: " << ended.err);
    REQUIRE(ended.signal == 0);
    REQUIRE(ended.exit_code == 75);
    CHECK_FALSE(has(ended.err, "error "));
    CHECK(comes_true([&] { return processes_with(site_.path().string() + "/").empty(); }));
    if (fs::exists(site_.run() / "metrics.jsonl")) {
      const std::int64_t step = last_step(site_.run());
      const auto saved = checkpoint_steps(site_.run());  // each is whole
      CHECK((saved.empty() ? 0 : saved.back()) == step);
    }
  }

  /// A little further.
  void go_on_and_compare() const {
    const auto saved = checkpoint_steps(site_.run());
    const Ended ended = start({}, {"run.steps_per_job=5"})->wait();
    INFO(ended.err);
    CHECK(ended.exit_code == 75);
    unstopped_run().check_same(site_.run(), (saved.empty() ? 0 : saved.back()) + 5);
    const Ended verified = site_.call({"verify", site_.run().string()});
    INFO(verified.out << verified.err);
    CHECK(verified.exit_code == 0);
  }

 private:
  RunSite site_;
};

std::size_t count_starts(const fs::path& run) {
  return count_events(run, "started") + count_events(run, "resumed");
}

/// A phase of a start, and how to wait for it.
struct Phase {
  const char* name;
  std::function<void(const RunSite&, Process&)> wait_for;
};

/// Beyond what earlier starts have left: one more event of a kind, one more step.
Phase next_event(const char* kind) {
  return {kind, [kind](const RunSite& site, Process& process) {
            wait_for_event(site, process, kind, count_events(site.run(), kind) + 1);
          }};
}

const std::vector<Phase>& phases() {
  static const std::vector<Phase> kPhases = {
      {"start-up", [](const RunSite&, Process& process) { REQUIRE(process.running()); }},
      {"preparation",
       [](const RunSite& site, Process& process) {
         const std::size_t before = count_starts(site.run());
         REQUIRE(process.until([&] { return count_starts(site.run()) > before; }));
       }},
      {"workers start, restore",
       [](const RunSite& site, Process& process) { started_workers(site, process, 2); }},
      {"steps", [](const RunSite& site,
                   Process& process) { wait_for_step(site, process, last_step(site.run()) + 1); }},
      next_event("evaluation"),
      next_event("checkpoint_copied"),
      next_event("checkpoint_published")};
  return kPhases;
}

/// Starts the run, waits for a phase, and then for so many steps more; then it gets the signal.
void preempt(const PreemptedRun& run, const Phase& phase, std::int64_t steps, int signal) {
  const auto process = run.start();
  REQUIRE(process->until([&] { return blocks_signals(process->pid()); }));
  phase.wait_for(run.site(), *process);
  if (steps > 0) {
    wait_for_step(run.site(), *process, last_step(run.site().run()) + steps);
  }
  // A terminal that goes tells all of its processes, as a batch system does.
  const bool to_all = signal == SIGTERM || signal == SIGHUP;
  REQUIRE(::kill(to_all ? -process->pid() : process->pid(), signal) == 0);
  run.check_stopped(*process,
                    fmt::format("signal {} {} steps after {}", signal, steps, phase.name));
}

}  // namespace

TEST_CASE("preemption: a signal in every phase saves, and the run goes on to the same bits",
          "[integration][.full][preemption][P1][P3]") {
  const PreemptedRun run;
  std::size_t next = 0;
  for (const Phase& phase : phases()) {
    preempt(run, phase, 0, kSignals[next++ % kSignals.size()]);
  }
  run.go_on_and_compare();
}

TEST_CASE("preemption: a signal while a checkpoint is being published",
          "[integration][.full][preemption][P1][P3]") {
  const PreemptedRun run;
  int signal = SIGTERM;
  for (const char* what :
       {"before:write:2", "after:sync:1", "before:rename:1", "after:rename:2", "before:retire:1"}) {
    const auto process = run.start({fmt::format("ACTORTRAIN_TEST_KILL={}:head", what),
                                    fmt::format("ACTORTRAIN_TEST_SIGNAL={}", signal)});
    run.check_stopped(*process, fmt::format("signal {} {}", signal, what));
    signal = signal == SIGTERM ? SIGUSR1 : SIGTERM;
  }
  run.go_on_and_compare();
}

TEST_CASE("preemption: a signal while the last checkpoint is being published ends the run",
          "[integration][preemption][P3]") {
  const PreemptedRun run;
  const auto process = run.start({"ACTORTRAIN_TEST_KILL=before:rename:1:head",
                                  fmt::format("ACTORTRAIN_TEST_SIGNAL={}", SIGTERM)},
                                 {"run.steps=4", "schedule.warmup_steps=2"});  // its only save
  const Ended ended = process->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(count_events(run.site().run(), "stop_requested") == 1);
  CHECK(checkpoint_steps(run.site().run()) == std::vector<std::int64_t>{4});
}

TEST_CASE("preemption: a signal beside the loss of a rank ends the job, whichever is first",
          "[integration][.full][preemption][P1][P4]") {
  const PreemptedRun run;
  for (const char* recovery : {"stop", "respawn"}) {
    for (const bool signal_first : {false, true}) {
      const auto process = run.start({}, {fmt::format("recovery.rank_loss={}", recovery)});
      wait_for_step(run.site(), *process, last_step(run.site().run()) + 1);
      const auto workers = workers_of(run.site().path());
      REQUIRE(workers.contains(1));
      process->send(SIGSTOP);  // both have come when it goes on
      if (signal_first) {
        process->send(SIGTERM);
      }
      ::kill(workers.at(1), SIGKILL);
      if (!signal_first) {
        process->send(SIGTERM);
      }
      process->send(SIGCONT);
      const Ended ended = process->wait();
      INFO(recovery << ", signal first: " << signal_first << "; stderr: " << ended.err);
      REQUIRE(ended.exit_code == 75);
      CHECK_FALSE(has(ended.err, "respawned"));
      CHECK(comes_true([&] { return processes_with(run.site().path().string() + "/").empty(); }));
      checkpoint_steps(run.site().run());  // what is there is whole
    }
  }
  run.go_on_and_compare();
}

TEST_CASE("preemption: signals at random events",
          "[integration][.full][soak][preemption][P1][P3]") {
  std::mt19937 random(Catch::rngSeed());
  const PreemptedRun run;
  for (int stop = 0; stop < 3 * soak(); ++stop) {
    const Phase& phase = phases()[random() % phases().size()];
    preempt(run, phase, random() % 12, kSignals[random() % kSignals.size()]);
  }
  run.go_on_and_compare();
}
