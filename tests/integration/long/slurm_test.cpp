// `actortrain submit` and a real Slurm of two nodes, which each test starts. Skipped, with a line
// that says why, where Slurm's programs are missing or do not start.
// ACTORTRAIN_SOAK=n takes the nodes away n times as often.

#include <random>

#include "tests/integration/kept_snapshots.hpp"
#include "tests/integration/killed_runs.hpp"
#include "tests/integration/slurm_cluster.hpp"
#include "tests/integration/table_end.hpp"

using namespace train::test;

namespace {

constexpr int kPatience = 90;  // seconds; a requeued job is held back for six

const Words kKeys = {"run.steps=1500", "run.digest_interval_steps=100", "eval.interval_steps=100",
                     "checkpoint.interval_steps=400", "checkpoint.keep_last=2"};

/// Holds the steps of a site's jobs back until the test has done to them what it wants to.
class SlowSteps {
 public:
  explicit SlowSteps(const RunSite& site)
      : file_(site / "slow"), variable_("ACTORTRAIN_TEST_SLOW", file_.string()) {
    write_bytes(file_, "");
  }
  void over() const { fs::remove(file_); }

 private:
  fs::path file_;
  EnvironmentVariable variable_;
};

std::int64_t steps_in(const fs::path& run) {
  return fs::exists(run / "metrics.jsonl")
             ? static_cast<std::int64_t>(lines_of(read_bytes(run / "metrics.jsonl")).size())
             : 0;
}

/// The number of the job.
int submitted(const RunSite& site, const std::string& name, const Words& keys = kKeys) {
  Words words = {"submit", "tiny.toml", "--nodes", "2", "--time", "10", "--mem", "500M"};
  for (const std::string& key :
       rank_keys(2, "optimizer", joined({"run.name=" + name, "parallel.interface=lo"}, keys))) {
    words.insert(words.end(), {"--set", key});
  }
  words.insert(words.begin(), faulty_program());
  const Ended ended = Process(words, site.path()).wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  REQUIRE(ended.out.starts_with("job "));
  return std::stoi(ended.out.substr(4));
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

pid_t parent_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  for (std::string word; file >> word;) {
    if (word == "PPid:" && file >> word) {
      return std::stoi(word);
    }
  }
  return 0;
}

/// The process that runs the program on a node; 0: there is none.
pid_t launcher_of_node(const RunSite& site, int node) {
  for (const auto& [process, words] : processes_with("tiny.toml")) {
    std::error_code unknown;
    const std::string proc = fmt::format("/proc/{}/", process);
    std::ifstream file(proc + "environ", std::ios::binary);
    const std::string variables{std::istreambuf_iterator<char>(file), {}};
    const fs::path binary = fs::read_symlink(proc + "exe", unknown);
    if (fs::equivalent(proc + "cwd", site.path(), unknown) &&
        binary.filename() == "actortrain_faulty" &&
        has(variables, std::string("\0SLURM_NODEID=", 14) + fmt::format("{}", node)) &&
        has(variables, "SLURM_STEP_NUM_NODES=")) {
      return process;
    }
  }
  return 0;
}

/// The job has been queued again for the `times`th time and has trained since.
bool goes_on(const SlurmCluster& cluster, const fs::path& run, int job, int times) {
  const bool again = SlurmCluster::within(
      kPatience, [&] { return cluster.restarts(job) == times && cluster.state(job) == "RUNNING"; });
  const std::int64_t before = steps_in(run);
  return again && SlurmCluster::within(kPatience, [&] { return steps_in(run) > before + 30; });
}

/// The job has the exit code of the table, and the table's line is in its output.
void check_job_ends_as(const TableEnd& end, const SlurmCluster& cluster, int job,
                       const std::string& output) {
  INFO("wanted: " << end.line);
  CHECK(cluster.field(job, "ExitCode") == fmt::format("{}:0", end.exit_code));
  CHECK(says(output, end));
}

/// A job whose nodes are taken away again and again.
class PreemptedJob {
 public:
  PreemptedJob(const SlurmCluster& cluster, const RunSite& site, const Words& keys)
      : cluster_(cluster), job_(submitted(site, "tiny", keys)), run_(site.run()) {}

  /// Waits until it runs: for the first time, or again since its nodes were taken.
  void started() {
    wait_until([&] {
      if (cluster_.restarts(job_) < losses_) {
        return false;
      }
      let_go();
      return cluster_.state(job_) == "RUNNING";
    });
  }

  /// Waits until this start has trained `steps` steps.
  void trained(std::int64_t steps) const {
    const std::int64_t wanted = steps_in(run_) + steps;
    wait_until([&] { return steps_in(run_) >= wanted; });
  }

  /// What a user or the scheduler does, what its script is told before its time is over, or what
  /// another job with more right to the nodes does.
  enum class Loss : std::uint8_t { requeue, warning, preemption };
  void take_nodes(Loss loss) {
    const std::string number = fmt::format("{}", job_);
    const Words words[] = {{"scontrol", "requeue", number},
                           {"scancel", "--batch", "--signal=USR1", number},
                           {"sbatch", "--partition=urgent", "--nodes=2", "--exclusive",
                            "--output=/dev/null", "--wrap=true"}};
    losses_ = cluster_.restarts(job_) + 1;
    const Ended ended = cluster_.call(words[static_cast<std::size_t>(loss)]);
    said_ = fmt::format("{}: {}{}", words[static_cast<std::size_t>(loss)].front(), ended.out,
                        ended.err);
    INFO(said_);
    REQUIRE(ended.exit_code == 0);
  }

  /// Waits for its end.
  void completed() {
    wait_until([&] {
      let_go();
      return cluster_.restarts(job_) == losses_ && cluster_.state(job_) == "COMPLETED";
    });
  }

  [[nodiscard]] std::string output() const {
    const fs::path file = run_ / fmt::format("slurm-{}.out", job_);
    return fs::exists(file) ? read_bytes(file) : std::string("no output");
  }

 private:
  template <class Condition>
  void wait_until(Condition condition) const {
    if (!SlurmCluster::within(kPatience, condition)) {
      FAIL(output() << said_ << cluster_.ask({"squeue", "--long"})
                    << cluster_.ask({"scontrol", "show", "job", fmt::format("{}", job_)}));
    }
  }

  /// Between two starts, once: what is there is whole and nothing of it was lost.
  void let_go() {
    const int restarts = cluster_.restarts(job_);
    if (restarts == let_go_ || cluster_.field(job_, "Reason") != "BeginTime") {
      return;
    }
    const auto steps =
        fs::exists(run_ / "checkpoints") ? checkpoint_steps(run_) : std::vector<std::int64_t>{};
    CHECK((steps.empty() ? 0 : steps.back()) >= saved_);
    saved_ = steps.empty() ? 0 : steps.back();
    cluster_.let_go(job_);
    let_go_ = restarts;
  }

  const SlurmCluster& cluster_;
  int job_;
  fs::path run_;
  int losses_ = 0;    ///< So often has it been queued again, or will be.
  int let_go_ = 0;    ///< The same, when it was let go last.
  std::string said_;  ///< By the program that took the nodes last.
  std::int64_t saved_ = 0;
};

}  // namespace

TEST_CASE("slurm: a run over two nodes survives what Slurm does to its job and ends once",
          "[integration][.full][slurm][submit][SB-1][SB-2][P3]") {
  SlurmCluster cluster;
  if (const std::string why = cluster.start(); !why.empty()) {
    fmt::print("skipped: slurm: {}\n", why);
    return;
  }
  const RunSite site;
  const SlowSteps slow(site);
  const int job = submitted(site, "tiny");
  const std::string number = fmt::format("{}", job);
  const fs::path run = site.run();
  const auto output = [&] {
    const fs::path file = run / fmt::format("slurm-{}.out", job);
    return fs::exists(file) ? read_bytes(file) : std::string("no output");
  };
  REQUIRE(SlurmCluster::within(kPatience, [&] { return steps_in(run) > 30; }));
  const std::string limit = cluster.field(job, "TimeLimit");
  CHECK(limit == "00:10:00");
  CHECK(cluster.field(job, "NumNodes") == "2");

  cluster.ask({"scontrol", "requeue", number});  // as a preemption does it
  INFO(output());
  REQUIRE(goes_on(cluster, run, job, 1));
  cluster.ask({"scancel", "--batch", "--signal=USR1", number});  // as its time runs out
  REQUIRE(goes_on(cluster, run, job, 2));
  slow.over();
  REQUIRE(SlurmCluster::within(kPatience, [&] { return cluster.state(job) == "COMPLETED"; }));
  INFO(output());
  CHECK(cluster.restarts(job) == 2);
  check_job_ends_as(end_of_steps(1500), cluster, job, output());
  CHECK(cluster.field(job, "TimeLimit") == limit);
  CHECK(count(output(), "info resumed step=") == 2);
  CHECK(count(output(), "all 1500 steps are done") == 1);
  CHECK(read_bytes(run / "finished") == "1500\n");
  const std::string metrics = read_bytes(run / "metrics.jsonl");

  cluster.ask({"scontrol", "requeue", number});  // somebody does: there is nothing left to do
  REQUIRE(SlurmCluster::within(
      kPatience, [&] { return cluster.restarts(job) == 3 && cluster.state(job) == "COMPLETED"; }));
  CHECK(count(output(), "info run_started") == 3);
  CHECK(count(output(), "all 1500 steps are done") == 2);
  CHECK(read_bytes(run / "metrics.jsonl") == metrics);

  Words whole = kKeys;
  whole.emplace_back("run.name=whole");
  site.train(whole);
  CHECK(results_of(run) == results_of(site.run("whole")));

  const SlowSteps slow_again(site);
  const int cancelled = submitted(site, "cancelled");
  const fs::path other = site.run("cancelled");
  REQUIRE(SlurmCluster::within(kPatience, [&] { return steps_in(other) > 30; }));
  cluster.ask({"scancel", fmt::format("{}", cancelled)});
  CHECK(SlurmCluster::within(kPatience, [&] { return cluster.state(cancelled) == "CANCELLED"; }));
  CHECK(cluster.restarts(cancelled) == 0);
  CHECK_FALSE(fs::exists(other / "finished"));
  CHECK(checkpoint_steps(other).size() == 1);  // it saved, and nobody queued it again
}

TEST_CASE("slurm: a launcher that is killed is started again within its job",
          "[integration][.full][slurm][submit][SB-1][P1][P4]") {
  SlurmCluster cluster;
  if (const std::string why = cluster.start(); !why.empty()) {
    fmt::print("skipped: slurm: {}\n", why);
    return;
  }
  const Words keys = {"run.steps=600", "run.digest_interval_steps=10", "eval.interval_steps=100",
                      "checkpoint.interval_steps=1000", "recovery.snapshot_interval_steps=20"};
  const RunSite site;
  const SlowSteps slow(site);
  const int job = submitted(site, "tiny", keys);
  const fs::path run = site.run();
  for (int loss = 1; loss <= 2; ++loss) {
    REQUIRE(SlurmCluster::within(kPatience, [&] { return steps_in(run) > 150 * loss; }));
    const pid_t launcher = launcher_of_node(site, 1);
    REQUIRE(launcher > 0);
    REQUIRE(::kill(launcher, SIGKILL) == 0);
  }
  const auto slurm_output = run / fmt::format("slurm-{}.out", job);
  REQUIRE(SlurmCluster::within(kPatience, [&] {
    return count(read_bytes(slurm_output), "info respawned generation=") >= 2;
  }));
  slow.over();
  REQUIRE(SlurmCluster::within(kPatience, [&] { return cluster.state(job) == "COMPLETED"; }));
  const std::string output = read_bytes(run / fmt::format("slurm-{}.out", job));
  INFO(output);
  CHECK(cluster.restarts(job) == 0);
  check_job_ends_as(end_of_steps(600), cluster, job, output);
  CHECK(count(output, "node 1: the launcher was killed, and is started again") == 2);
  check_lost_as(ends_of_lost_node(1, {0, 1}), output);
  CHECK(count(output, "info respawned generation=") >= 2);
  CHECK(count(output, "info run_started") == 1);
  site.train(joined(keys, {"run.name=whole"}));
  CHECK(results_of(run) == results_of(site.run("whole")));
}

TEST_CASE("slurm: a job that loses a node for good goes on without it",
          "[integration][.full][slurm][submit][SB-1][P1][P4]") {
  SlurmCluster cluster;
  if (const std::string why = cluster.start(); !why.empty()) {
    fmt::print("skipped: slurm: {}\n", why);
    return;
  }
  const Words keys = {"run.steps=600",
                      "run.digest_interval_steps=10",
                      "eval.interval_steps=100",
                      "checkpoint.interval_steps=1000",
                      "recovery.snapshot_interval_steps=20",
                      "recovery.node_wait_s=2"};
  const RunSite site;
  const SlowSteps slow(site);
  const int job = submitted(site, "tiny", keys);
  const fs::path run = site.run();
  REQUIRE(SlurmCluster::within(kPatience, [&] { return steps_in(run) > 100; }));
  const pid_t head = launcher_of_node(site, 0);
  const pid_t launcher = launcher_of_node(site, 1);
  REQUIRE((head > 0 && launcher > 0));
  const pid_t script = parent_of(launcher);
  const std::vector<pid_t> tasks = {parent_of(script), script, launcher};  // the first is Slurm's
  REQUIRE(lose_when_kept(site.path(), {head, launcher}, 1, 1, [&] {
    for (const pid_t task : tasks) {
      ::kill(task, SIGKILL);
    }
  }));
  cluster.lose_second_node();
  slow.over();
  const bool completed =
      SlurmCluster::within(kPatience, [&] { return cluster.state(job) == "COMPLETED"; });
  const std::string output = read_bytes(run / fmt::format("slurm-{}.out", job));
  INFO(output);
  INFO(cluster.ask({"scontrol", "show", "job", fmt::format("{}", job)}));
  REQUIRE(completed);
  CHECK(cluster.restarts(job) == 0);
  check_job_ends_as(end_of_steps(600), cluster, job, output);
  check_lost_as(ends_of_lost_node(1, {0, 1}), output);
  CHECK(count(output, "nodes_lost node 1 has not come back within 2 s") == 1);
  CHECK(count(output, " from memory") == 1);
  CHECK(count(output, "info run_started") == 1);
  site.train(joined(keys, {"run.name=whole"}));
  CHECK(results_of(run) == results_of(site.run("whole")));
}

TEST_CASE("slurm: a job whose nodes are taken away again and again ends with the same bits",
          "[integration][.full][slurm][submit][SB-1][P1][P3]") {
  SlurmCluster cluster;
  if (const std::string why = cluster.start(); !why.empty()) {
    fmt::print("skipped: slurm: {}\n", why);
    return;
  }
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  const int wanted = 4 * soak();
  constexpr int kMostSteps = 100;  // of a start before its nodes are taken
  const Words keys = {fmt::format("run.steps={}", 5 * kMostSteps * wanted),
                      "run.digest_interval_steps=10", "eval.interval_steps=100",
                      "checkpoint.interval_steps=40", "checkpoint.keep_last=2"};
  const RunSite site;
  const SlowSteps slow(site);
  PreemptedJob job(cluster, site, keys);
  using Loss = PreemptedJob::Loss;
  std::map<Loss, int> losses;
  int starting = 0;  // how often before it trained
  for (int i = 0; i < wanted; ++i) {
    job.started();
    const auto loss = static_cast<Loss>(random() % 3);
    // A script that is warned before it listens is ended; no warning comes that early.
    if (loss != Loss::warning && random() % 4 == 0) {
      ++starting;
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 700));
    } else {
      job.trained(1 + static_cast<std::int64_t>(random() % kMostSteps));
    }
    job.take_nodes(loss);
    ++losses[loss];
  }
  slow.over();
  job.completed();
  const std::string output = job.output();
  INFO(output);
  CHECK(says(output, end_of_steps(5 * kMostSteps * wanted)));
  CHECK(count(output, fmt::format("all {} steps are done", 5 * kMostSteps * wanted)) == 1);
  const std::string metrics = read_bytes(site.run() / "metrics.jsonl");

  job.take_nodes(Loss::requeue);  // there is nothing left to do
  job.completed();
  CHECK(count(job.output(), "info run_started") == count(output, "info run_started"));
  CHECK(read_bytes(site.run() / "metrics.jsonl") == metrics);
  const Ended verified = site.call({"verify", site.run().string()});
  INFO(verified.out << verified.err);
  CHECK(verified.exit_code == 0);

  site.train(joined(keys, {"run.name=whole"}));
  CHECK(results_of(site.run()) == results_of(site.run("whole")));
  fmt::print(
      "slurm: seed {}, {} losses of the nodes: {} requeued, {} warned, {} preempted; {} of "
      "them before the first step\n",
      seed, wanted, losses[Loss::requeue], losses[Loss::warning], losses[Loss::preemption],
      starting);
}
