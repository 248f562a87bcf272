// `actortrain submit` and a real Slurm of two nodes, which the test starts. Skipped, with a line
// that says why, where Slurm's programs are missing or do not start.

#include "tests/integration/slurm_cluster.hpp"

using namespace train::test;

namespace {

constexpr int kPatience = 40;  // seconds; a requeued job is held back for six

const Words kKeys = {"run.steps=1500", "run.digest_interval_steps=100", "eval.interval_steps=100",
                     "checkpoint.interval_steps=400", "checkpoint.keep_last=2"};

std::int64_t steps_in(const fs::path& run) {
  return fs::exists(run / "metrics.jsonl")
             ? static_cast<std::int64_t>(lines_of(read_bytes(run / "metrics.jsonl")).size())
             : 0;
}

Words submit_words(const std::string& name) {
  Words words = {"submit", "tiny.toml", "--nodes", "2", "--time", "10", "--mem", "500M"};
  Words keys = kKeys;
  keys.insert(keys.end(), {"run.name=" + name, "parallel.ranks=2", "parallel.strategy=optimizer",
                           "parallel.interface=lo"});
  for (const std::string& key : keys) {
    words.insert(words.end(), {"--set", key});
  }
  return words;
}

int submitted(const RunSite& site, const std::string& name) {
  const Ended ended = site.call(submit_words(name));
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

/// The job has been queued again for the `times`th time and has trained since.
bool goes_on(const SlurmCluster& cluster, const fs::path& run, int job, int times) {
  const bool again = SlurmCluster::within(
      kPatience, [&] { return cluster.restarts(job) == times && cluster.state(job) == "RUNNING"; });
  const std::int64_t before = steps_in(run);
  return again && SlurmCluster::within(kPatience, [&] { return steps_in(run) > before + 30; });
}

}  // namespace

TEST_CASE("slurm: a run over two nodes survives what Slurm does to its job and ends once",
          "[integration][slurm][submit][SB-1][SB-2][P3]") {
  SlurmCluster cluster;
  if (const std::string why = cluster.start(); !why.empty()) {
    fmt::print("skipped: slurm: {}\n", why);
    return;
  }
  const RunSite site;
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
  REQUIRE(SlurmCluster::within(kPatience, [&] { return cluster.state(job) == "COMPLETED"; }));
  INFO(output());
  CHECK(cluster.restarts(job) == 2);
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

  const int cancelled = submitted(site, "cancelled");
  const fs::path other = site.run("cancelled");
  REQUIRE(SlurmCluster::within(kPatience, [&] { return steps_in(other) > 30; }));
  cluster.ask({"scancel", fmt::format("{}", cancelled)});
  CHECK(SlurmCluster::within(kPatience, [&] { return cluster.state(cancelled) == "CANCELLED"; }));
  CHECK(cluster.restarts(cancelled) == 0);
  CHECK_FALSE(fs::exists(other / "finished"));
  CHECK(checkpoint_steps(other).size() == 1);  // it saved, and nobody queued it again
}
