// `actortrain submit` as a program: what it checks, writes and hands to sbatch.
#include "tests/integration/sites/run_site.hpp"
#include "tests/support/processes/script.hpp"

using namespace train::test;

namespace {

/// A site with an `sbatch` that notes what it is given and answers as it is told.
class SubmitSite : public RunSite {
 public:
  SubmitSite() { script("sinfo", "echo '64+'; echo 48"); }
  void script(const std::string& name, const std::string& lines) const {
    fs::create_directories(*this / "bin");
    write_script(*this / "bin" / name, lines);
  }
  void sbatch(const std::string& lines) const { script("sbatch", lines); }
  [[nodiscard]] Ended submit(Words words, const std::string& path = "/usr/bin:/bin") const {
    words.insert(words.begin(),
                 {"/usr/bin/env", fmt::format("PATH={}:{}", (*this / "bin").string(), path),
                  program(), "submit", "tiny.toml"});
    return Process(std::move(words), this->path()).wait();
  }
};

constexpr const char* kTakes = "echo \"$@\" >asked; echo '41;cluster'";

}  // namespace

TEST_CASE("submit: the script is written and handed to sbatch", "[integration][submit]") {
  const SubmitSite site;
  site.sbatch(kTakes);
  const Ended ended =
      site.submit({"--nodes", "1", "--time", "1:00:00", "--set", "run.name=a b", "--mem", "1G"});
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  const fs::path script = site / "runs/a b.sbatch";
  CHECK(has(read_bytes(site / "asked"), "--parsable " + script.string()));
  CHECK(ended.out == fmt::format("job 41 submitted: {}\noutput: {}\n", script.string(),
                                 (site / "runs/a b/slurm-41.out").string()));
  const std::string text = read_bytes(script);
  for (const char* part :
       {"#SBATCH --time=1:00:00\n", "#SBATCH --mem=1G\n", "#SBATCH --cpus-per-task=1\n",
        "'run' '--set' 'run.name=a b' '--set' 'parallel.nodes=1' '--' 'tiny.toml'"}) {
    INFO(text);
    CHECK(has(text, part));
  }
  CHECK(has(text, fs::canonical(program()).string()));
  // What the job writes there before the run begins is no other's.
  write_bytes(site / "runs/a b/slurm-41.out", "loading modules\n");
  CHECK(
      site.call({"run", "tiny.toml", "--set", "run.name=a b", "--set", "run.steps=5"}).exit_code ==
      0);
}

TEST_CASE("submit: --dry-run shows the same script and changes nothing", "[integration][submit]") {
  const SubmitSite site;
  const auto before = tree_of(site.path());
  const Ended shown = site.submit({"--dry-run"});
  INFO(shown.err);
  CHECK(shown.exit_code == 0);
  CHECK(tree_of(site.path()) == before);
  site.sbatch(kTakes);
  CHECK(site.submit({}).exit_code == 0);
  CHECK(read_bytes(site / "runs/tiny.sbatch") == shown.out);
}

TEST_CASE("submit: a profile fills in what run and command line leave open",
          "[integration][submit][clusters]") {
  const SubmitSite site;
  fs::create_directories(site / "clusters");
  write_bytes(site / "clusters/here.toml",
              "hosts = [\"*\"]\npartition = \"short\"\ntime = \"2:00:00\"\ncpus = 6\n"
              "local_dir = \"/tmp/fast disk\"\nrun_dir = \"elsewhere\"\nmodules = [\"gcc\"]\n");
  write_bytes(site / "clusters/other.toml", "partition = \"long\"\ninterface = \"lo\"\n");
  const Ended chosen = site.submit({"--dry-run", "--time", "30"});
  INFO(chosen.err);
  REQUIRE(chosen.exit_code == 0);
  for (const char* part :
       {"--partition=short\n", "--time=30\n", "--cpus-per-task=6\n", "module load 'gcc'\n",
        "'--set' 'run.dir=elsewhere' '--set' 'checkpoint.local_dir=/tmp/fast disk'",
        "/elsewhere/tiny'\n"}) {
    INFO(chosen.out);
    CHECK(has(chosen.out, part));
  }
  const Ended named = site.submit({"--dry-run", "--profile", "other", "--set", "run.dir=mine"});
  INFO(named.err);
  CHECK(has(named.out, "--partition=long\n"));
  CHECK_FALSE(has(named.out, "module"));
  CHECK(has(named.out, "/mine/tiny'\n"));
  const Ended joined =
      site.submit({"--dry-run", "--profile", "other", "--nodes", "2", "--set", "parallel.ranks=2"});
  INFO(joined.err);
  CHECK(has(joined.out,
            "'--set' 'parallel.interface=lo' '--set' 'parallel.ranks=2' '--set' "
            "'parallel.nodes=2'"));
  const Ended kept = site.submit({"--dry-run", "--set", "run.dir=mine"});
  CHECK_FALSE(has(kept.out, "elsewhere"));
}

TEST_CASE("submit: all cores of a node are those that Slurm says it has", "[integration][submit]") {
  const SubmitSite site;
  const auto shown_with = [&site](const Words& more, const std::string& path = "/usr/bin:/bin") {
    Words words = {"--dry-run", "--set", "runtime.threads=0"};
    words.insert(words.end(), more.begin(), more.end());
    return site.submit(words, path);
  };
  const auto asks_for = [&shown_with](const Words& words, int cores) {
    const Ended shown = shown_with(words);
    INFO(shown.err << shown.out);
    CHECK(shown.exit_code == 0);
    CHECK(has(shown.out, fmt::format("#SBATCH --cpus-per-task={}\n", cores)));
  };
  asks_for({}, 48);
  asks_for({"--cpus", "5"}, 5);
  asks_for({"--set", "runtime.threads=3", "--set", "parallel.ranks=2"}, 6);
  site.script("sinfo", "[ \"$3\" = --partition=long ] && echo 96");
  asks_for({"--partition", "long"}, 96);
  check_one_line(shown_with({"--partition", "short"}), 2,
                 {"runtime.threads: 0 means all cores of a node", "partition short", "--cpus N"});
  fs::remove(site / "bin/sinfo");
  check_one_line(shown_with({}, "/nowhere"), 2,
                 {"no program \"sinfo\" in PATH", "--cpus N", "runtime.threads"});
}

TEST_CASE("submit: a mistake is one line, and nothing is submitted",
          "[integration][submit][mistakes]") {
  const SubmitSite site;
  site.sbatch(kTakes);
  const auto refused = [&](const Words& words, const Words& parts, int code = 2) {
    check_one_line(site.submit(words), code, parts);
    CHECK_FALSE(fs::exists(site / "asked"));
    CHECK_FALSE(fs::exists(site / "runs"));
  };
  refused({"--set", "run.steps=0"}, {"run.steps must be 1 .. 1000000000"});
  refused({"--set", "run.stepz=1"}, {"unknown key", "run.steps"});
  refused({"--set", "data.dir=none"}, {"none"});
  refused({"--nodes", "2", "--set", "parallel.interface=lo"}, {"parallel.nodes"});
  refused({"--nodes", "2", "--set", "parallel.ranks=2"},
          {"parallel.interface is empty, but parallel.nodes is 2"});
  refused({"--profile", "none"}, {"--profile none"});
  refused({"--set", "run.dir=a\nb"}, {"line break"});
  fs::create_directories(site / "clusters");
  write_bytes(site / "clusters/a.toml", "\npartion = \"x\"\n");
  refused({}, {"clusters/a.toml:2: unknown key \"partion\"", "\"partition\""});
  fs::remove_all(site / "clusters");

  fs::remove(site / "bin/sbatch");
  check_one_line(site.submit({}, "/nowhere"), 2, {"no program \"sbatch\" in PATH", "--dry-run"});
  CHECK_FALSE(fs::exists(site / "runs"));
  site.sbatch("echo 'sbatch: error: invalid partition: x' >&2; exit 1");
  check_one_line(site.submit({"--partition", "x"}), 1,
                 {"runs/tiny.sbatch", "exit code 1", "invalid partition"});
  site.sbatch(kTakes);
  write_bytes(site / "runs/tiny/finished", "20\n");
  check_one_line(site.submit({}), 2, {"finished: all 20 steps are done; raise run.steps"});
  CHECK_FALSE(fs::exists(site / "asked"));
  CHECK(site.submit({"--set", "run.steps=21"}).exit_code == 0);
}

TEST_CASE("submit: a run of many jobs computes what one job does",
          "[integration][.full][submit][run][P3]") {
  const RunSite site;
  site.train({"run.name=whole"});
  const Words keys = {"run.steps_per_job=7"};
  for (const std::int64_t done : {7, 14}) {
    const Ended part = site.start_run(keys)->wait();
    INFO(part.err);
    CHECK(part.exit_code == 75);
    CHECK(has(part.err, fmt::format("reached this start's last step, {}, and saved", done)));
    CHECK(newest_checkpoint(site.run()) == done);
  }
  site.train(keys);
  CHECK(results_of(site.run()) == results_of(site.run("whole")));
}
