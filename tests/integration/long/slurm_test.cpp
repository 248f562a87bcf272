// `actortrain submit` and a real Slurm of two nodes, which the first test starts for all. Skipped,
// with a line that says why, where Slurm's programs are missing or do not start.

#include <algorithm>
#include <random>

#include "tests/integration/kept_snapshots.hpp"
#include "tests/integration/sites/killed_runs.hpp"
#include "tests/integration/sites/slurm_cluster.hpp"
#include "tests/integration/table_end.hpp"

using namespace train::test;

namespace {

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

std::int64_t steps_done(const fs::path& run) {
  return fs::exists(run / "metrics.jsonl")
             ? static_cast<std::int64_t>(lines_of(read_bytes(run / "metrics.jsonl")).size())
             : 0;
}

/// The number of the job.
int submitted(const RunSite& site, const std::string& name, const Words& keys) {
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

/// The words of a job in the directory of its run so far.
std::string job_output(const fs::path& run, int job) {
  const fs::path file = run / fmt::format("slurm-{}.out", job);
  return fs::exists(file) ? read_bytes(file) : std::string("no output");
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
      : cluster_(cluster), site_(site), job_(submitted(site, "tiny", keys)), run_(site.run()) {}

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

  [[nodiscard]] int number() const { return job_; }

  /// Waits until this start has come so far: to the program, or to its ranks.
  void begun(bool ranks) const {
    wait_until([&] {
      return launcher_of_node(site_, 0) > 0 && (!ranks || workers_of(site_.path()).size() == 2);
    });
  }

  /// Waits until this start has trained `steps` steps.
  void trained(std::int64_t steps) const {
    const std::int64_t wanted = steps_done(run_) + steps;
    wait_until([&] { return steps_done(run_) >= wanted; });
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

  [[nodiscard]] std::string output() const { return job_output(run_, job_); }

 private:
  template <class Condition>
  void wait_until(Condition condition) const {
    if (!comes_true(condition)) {
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
  const RunSite& site_;
  int job_;
  fs::path run_;
  int losses_ = 0;    ///< So often has it been queued again, or will be.
  int let_go_ = 0;    ///< The same, when it was let go last.
  std::string said_;  ///< By the program that took the nodes last.
  std::int64_t saved_ = 0;
};

using Loss = PreemptedJob::Loss;

/// How a job loses its nodes: each way when it has trained, and one of them before.
struct Losses {
  struct One {
    Loss loss = Loss::requeue;
    bool early = false;
  };
  std::vector<One> all;

  explicit Losses(std::mt19937& random) {
    for (int pass = 0; pass < soak(); ++pass) {
      // A script that is warned before it listens is ended; no warning comes that early.
      std::vector<One> some = {{Loss::requeue},
                               {Loss::warning},
                               {Loss::preemption},
                               {random() % 2 == 0 ? Loss::requeue : Loss::preemption, true}};
      std::shuffle(some.begin(), some.end(), random);
      all.insert(all.end(), some.begin(), some.end());
    }
  }
};

/// Somebody cancels a job: it saves, and nobody queues it again.
void check_cancelled(const SlurmCluster& cluster, const RunSite& site, const Words& keys) {
  const SlowSteps slow(site);
  const int job = submitted(site, "cancelled", keys);
  const fs::path run = site.run("cancelled");
  REQUIRE(comes_true([&] { return steps_done(run) > 10; }));
  cluster.ask({"scancel", fmt::format("{}", job)});
  CHECK(comes_true([&] { return cluster.state(job) == "CANCELLED"; }));
  CHECK(cluster.restarts(job) == 0);
  CHECK_FALSE(fs::exists(run / "finished"));
  INFO(job_output(run, job));
  CHECK(newest_checkpoint(run) == last_step(run));
}

}  // namespace

TEST_CASE("slurm: a job whose nodes are taken away again and again ends once, with the same bits",
          "[integration][.full][soak][slurm][submit][SB-1][SB-2][P1][P3]") {
  if (SlurmJobs::skipped()) {
    return;
  }
  const SlurmJobs jobs;
  SlurmCluster& cluster = SlurmJobs::cluster();
  std::mt19937 random(Catch::rngSeed());
  const std::vector<Losses::One> losses = Losses(random).all;
  const auto steps = 300 * static_cast<int>(losses.size());
  const Words keys = {fmt::format("run.steps={}", steps), "run.digest_interval_steps=10",
                      "eval.interval_steps=100", "checkpoint.interval_steps=40",
                      "checkpoint.keep_last=2"};
  const RunSite site;
  const SlowSteps slow(site);
  PreemptedJob job(cluster, site, keys);
  const std::string limit = cluster.field(job.number(), "TimeLimit");
  CHECK(limit == "00:10:00");
  job.started();
  CHECK(cluster.field(job.number(), "NumNodes") == "2");
  for (const Losses::One& one : losses) {
    job.started();
    if (one.early) {
      job.begun(random() % 2 == 0);
    } else {
      job.trained(1 + static_cast<std::int64_t>(random() % 60));
    }
    job.take_nodes(one.loss);
  }
  slow.over();
  job.completed();
  const std::string output = job.output();
  INFO(output);
  const std::string done = fmt::format("all {} steps are done", steps);
  CHECK(cluster.restarts(job.number()) == static_cast<int>(losses.size()));
  check_job_ends_as(end_of_steps(steps), cluster, job.number(), output);
  CHECK(cluster.field(job.number(), "TimeLimit") == limit);
  CHECK(count_of(output, done) == 1);
  CHECK(read_bytes(site.run() / "finished") == fmt::format("{}\n", steps));
  const std::string metrics = read_bytes(site.run() / "metrics.jsonl");

  job.take_nodes(Loss::requeue);  // somebody does: there is nothing left to do
  job.completed();
  CHECK(count_of(job.output(), "info run_started") == count_of(output, "info run_started"));
  CHECK(count_of(job.output(), done) == 2);
  CHECK(read_bytes(site.run() / "metrics.jsonl") == metrics);
  const Ended verified = site.call({"verify", site.run().string()});
  INFO(verified.out << verified.err);
  CHECK(verified.exit_code == 0);

  site.train(joined(keys, {"run.name=whole"}));
  CHECK(results_of(site.run()) == results_of(site.run("whole")));
  check_cancelled(cluster, site, keys);
}

namespace {

/// Of jobs whose state is in memory.
const Words kSlurmFromMemory = {"run.steps=600", "run.digest_interval_steps=10",
                                "eval.interval_steps=100", "checkpoint.interval_steps=1000",
                                "recovery.snapshot_interval_steps=20"};

}  // namespace

TEST_CASE("slurm: a launcher that is killed is started again within its job",
          "[integration][.full][slurm][submit][SB-1][P1][P4]") {
  if (SlurmJobs::skipped()) {
    return;
  }
  const SlurmJobs jobs;
  const SlurmCluster& cluster = SlurmJobs::cluster();
  const RunSite site;
  const SlowSteps slow(site);
  const int job = submitted(site, "tiny", kSlurmFromMemory);
  const fs::path run = site.run();
  for (std::size_t loss = 1; loss <= 2; ++loss) {
    const std::int64_t before = steps_done(run);
    REQUIRE(comes_true([&] { return steps_done(run) > before + 25; }));
    const pid_t launcher = launcher_of_node(site, 1);
    REQUIRE(launcher > 0);
    REQUIRE(::kill(launcher, SIGKILL) == 0);
    REQUIRE(comes_true([&] { return count_events(run, "respawned") >= loss; }));
  }
  slow.over();
  REQUIRE(comes_true([&] { return cluster.state(job) == "COMPLETED"; }));
  const std::string output = read_bytes(run / fmt::format("slurm-{}.out", job));
  INFO(output);
  CHECK(cluster.restarts(job) == 0);
  check_job_ends_as(end_of_steps(600), cluster, job, output);
  CHECK(count_of(output, "node 1: the launcher was killed, and is started again") == 2);
  check_lost_as(ends_of_lost_node(1, {0, 1}), output);
  CHECK(count_of(output, "info run_started") == 1);
  site.train(joined(kSlurmFromMemory, {"run.name=whole"}));
  CHECK(results_of(run) == results_of(site.run("whole")));
}

TEST_CASE("slurm: a job that loses a node for good goes on without it",
          "[integration][.full][slurm][submit][SB-1][P1][P4]") {
  if (SlurmJobs::skipped()) {
    return;
  }
  const SlurmJobs jobs;
  SlurmCluster& cluster = SlurmJobs::cluster();
  const Words keys = joined(kSlurmFromMemory, {"recovery.node_wait_s=2"});
  const RunSite site;
  const SlowSteps slow(site);
  const int job = submitted(site, "tiny", keys);
  const fs::path run = site.run();
  REQUIRE(comes_true([&] { return steps_done(run) > 50; }));
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
  const bool completed = comes_true([&] { return cluster.state(job) == "COMPLETED"; });
  const std::string output = read_bytes(run / fmt::format("slurm-{}.out", job));
  INFO(output);
  INFO(cluster.ask({"scontrol", "show", "job", fmt::format("{}", job)}));
  REQUIRE(completed);
  CHECK(cluster.restarts(job) == 0);
  check_job_ends_as(end_of_steps(600), cluster, job, output);
  check_lost_as(ends_of_lost_node(1, {0, 1}), output);
  CHECK(count_of(output, "nodes_lost node 1 did not come back within 2 s") == 1);
  CHECK(count_of(output, " from memory") == 1);
  CHECK(count_of(output, "info run_started") == 1);
  site.train(joined(keys, {"run.name=whole"}));
  CHECK(results_of(run) == results_of(site.run("whole")));
}
