// SIGTERM and SIGUSR1, to the launcher or to all processes of the job, in every phase of a run in
// processes and at 60 random moments: the run says 75, what it has done is saved, and the same
// command goes on to the bits of the run that nothing disturbed.
// ACTORTRAIN_SOAK=n goes on n times as long.

#include <fstream>
#include <functional>
#include <random>

#include "tests/integration/endless_run.hpp"
#include "tests/integration/killed_runs.hpp"

using namespace train::test;

namespace {

constexpr std::int64_t kSteps = 600;             // of runs that signals may come too late for
constexpr std::int64_t kEndlessSteps = 1000000;  // of the others

// Evaluations and saves take their share of the time.
Words preempted_keys(std::int64_t steps, const Words& more = {}) {
  return killed_run_keys(steps, joined({"eval.interval_steps=25", "eval.lanes=24",
                                        "checkpoint.interval_steps=10", "checkpoint.keep_last=2"},
                                       more));
}

UnbrokenRun& unbroken_run(std::int64_t steps) {
  static UnbrokenRun short_run(preempted_keys(kSteps));
  static UnbrokenRun endless_run(preempted_keys(kEndlessSteps));
  return steps == kSteps ? short_run : endless_run;
}

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
  explicit PreemptedRun(std::int64_t steps) : steps_(steps) {}

  [[nodiscard]] const RunSite& site() const { return site_; }
  [[nodiscard]] bool over() const { return over_; }

  [[nodiscard]] std::unique_ptr<Process> start(const Words& variables = {},
                                               const Words& more = {}) const {
    Words words = joined({"/usr/bin/env"}, variables);
    words.emplace_back(variables.empty() ? program() : faulty_program());
    return std::make_unique<Process>(
        joined(words, RunSite::run_words(preempted_keys(steps_, more))), site_.path(),
        Process::Group::own);
  }

  /// What must be true when a start that was signalled has ended.
  void check_stopped(Process& process, const std::string& when) {
    const Ended ended = process.wait();
    INFO(when << "; stderr: " << ended.err);
    REQUIRE(ended.signal == 0);
    over_ = ended.exit_code == 0;  // the last step was done before it came
    REQUIRE((ended.exit_code == 75 || (over_ && has(ended.err, "finished at step"))));
    CHECK_FALSE(has(ended.err, "error "));
    CHECK(comes_true([&] { return processes_with(site_.path().string() + "/").empty(); }));
    if (fs::exists(site_.run() / "metrics.jsonl")) {
      const std::int64_t step = last_step(site_.run());
      const auto saved = checkpoint_steps(site_.run());  // each is whole
      CHECK((saved.empty() ? 0 : saved.back()) == step);
    }
  }

  /// To the run's end, or a little further if it has none in sight.
  void finish_and_compare() const {
    const Words more = steps_ == kSteps ? Words() : Words{"run.steps_per_job=20"};
    const Ended ended = start({}, more)->wait();
    INFO(ended.err);
    CHECK(ended.exit_code == (more.empty() ? 0 : 75));
    unbroken_run(steps_).check_same(site_.run(), more.empty() ? kSteps : 20);
    const Ended verified = site_.call({"verify", site_.run().string()});
    INFO(verified.out << verified.err);
    CHECK(verified.exit_code == 0);
  }

 private:
  std::int64_t steps_;
  RunSite site_;
  bool over_ = false;
};

/// A phase, and when it is there.
struct Phase {
  const char* name;
  std::function<bool(const PreemptedRun&, Process&)> reached;
};

bool has_step_line(Process& process) { return has(process.out(), "\nstep "); }

const std::vector<Phase>& phases() {
  static const std::vector<Phase> kPhases = {
      {"start-up", [](const PreemptedRun&, Process& process) { return process.running(); }},
      {"preparation",
       [](const PreemptedRun&, Process& process) { return has(process.err(), "run_started"); }},
      {"workers start, restore",
       [](const PreemptedRun& run, Process&) { return workers_of(run.site().path()).size() == 2; }},
      {"steps", [](const PreemptedRun&, Process& process) { return has_step_line(process); }},
      {"saved",
       [](const PreemptedRun&, Process& process) { return has(process.out(), "checkpoint "); }}};
  return kPhases;
}

}  // namespace

TEST_CASE("preemption: a signal in every phase saves, and the run goes on to the same bits",
          "[integration][.full][preemption][P1][P3]") {
  PreemptedRun run(kEndlessSteps);
  for (const int signal : {SIGTERM, SIGUSR1}) {
    for (const Phase& phase : phases()) {
      const auto process = run.start();
      REQUIRE(process->until([&] { return blocks_signals(process->pid()); }));
      REQUIRE(process->until([&] { return phase.reached(run, *process); }));
      REQUIRE(::kill(signal == SIGTERM ? -process->pid() : process->pid(), signal) == 0);
      run.check_stopped(*process, fmt::format("signal {} at {}", signal, phase.name));
    }
  }
  run.finish_and_compare();
}

TEST_CASE("preemption: a signal while a checkpoint is being published",
          "[integration][.full][preemption][P1][P3]") {
  PreemptedRun run(kEndlessSteps);
  for (const int signal : {SIGTERM, SIGUSR1}) {
    for (const char* what : {"before:write:2", "after:sync:1", "before:rename:1", "after:rename:2",
                             "before:retire:1"}) {
      const auto process = run.start({fmt::format("ACTORTRAIN_TEST_KILL={}:head", what),
                                      fmt::format("ACTORTRAIN_TEST_SIGNAL={}", signal)});
      run.check_stopped(*process, fmt::format("signal {} {}", signal, what));
    }
  }
  run.finish_and_compare();
}

TEST_CASE("preemption: a signal while the last checkpoint is being published ends the run",
          "[integration][preemption][P3]") {
  const PreemptedRun run(4);  // its only save
  const auto process = run.start({"ACTORTRAIN_TEST_KILL=before:rename:1:head",
                                  fmt::format("ACTORTRAIN_TEST_SIGNAL={}", SIGTERM)},
                                 {"schedule.warmup_steps=2"});
  const Ended ended = process->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "stop_requested"));
  CHECK(checkpoint_steps(run.site().run()) == std::vector<std::int64_t>{4});
}

TEST_CASE("preemption: a signal beside the loss of a rank ends the job, whichever is first",
          "[integration][.full][preemption][P1][P4]") {
  PreemptedRun run(kEndlessSteps);
  for (const char* recovery : {"stop", "respawn"}) {
    for (const bool signal_first : {false, true}) {
      const auto process = run.start({}, {fmt::format("recovery.rank_loss={}", recovery)});
      REQUIRE(process->until([&] { return has_step_line(*process); }));
      const auto workers = workers_of(run.site().path());
      REQUIRE(workers.contains(1));
      if (signal_first) {
        process->send(SIGTERM);
      }
      ::kill(workers.at(1), SIGKILL);
      if (!signal_first) {
        process->send(SIGTERM);
      }
      const Ended ended = process->wait();
      INFO(recovery << ", signal first: " << signal_first << "; stderr: " << ended.err);
      REQUIRE(ended.exit_code == 75);
      CHECK_FALSE(has(ended.err, "respawned"));
      CHECK(comes_true([&] { return processes_with(run.site().path().string() + "/").empty(); }));
      checkpoint_steps(run.site().run());  // what is there is whole
    }
  }
  run.finish_and_compare();
}

TEST_CASE("preemption: 60 signals at any time", "[integration][.full][preemption][P1][P3]") {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  const int wanted = 60 * soak();
  int stopped = 0;
  int runs = 0;
  std::map<std::string, int> since;  // the beginning of which phase
  std::unique_ptr<PreemptedRun> run;
  for (int i = 0; stopped < wanted && i < 50 * wanted; ++i) {  // a run may be over before
    if (!run) {
      run = std::make_unique<PreemptedRun>(kSteps);
      ++runs;
    }
    const auto process = run->start();
    process->until([&] { return blocks_signals(process->pid()); });  // or it is over
    const Phase& phase = phases()[random() % phases().size()];
    process->until([&] { return phase.reached(*run, *process); });
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 250));
    const int signal = random() % 2 == 0 ? SIGTERM : SIGUSR1;
    const bool to_all = random() % 2 == 0;
    if (process->running()) {
      ++since[phase.name];
      ::kill(to_all ? -process->pid() : process->pid(), signal);
      ++stopped;
    }
    run->check_stopped(*process, fmt::format("signal {} to {}", signal, to_all ? "all" : "one"));
    if (run->over()) {
      run->finish_and_compare();
      run.reset();
    }
  }
  if (run) {
    run->finish_and_compare();
  }
  fmt::print("preemption: seed {}, {} signals in {} runs:", seed, stopped, runs);
  for (const auto& [phase, count] : since) {
    fmt::print(" {} {};", phase, count);
  }
  fmt::print("\n");
  CHECK(stopped == wanted);
}
