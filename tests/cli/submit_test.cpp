// The batch script of `actortrain submit`: its lines, and what it does with srun, scancel and
// scontrol, which are scripts here that note what they are asked.
#include <csignal>
#include <memory>

#include "cli/options.hpp"
#include "cli/submit/submit_script.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/process.hpp"
#include "tests/support/processes/script.hpp"

namespace train::cli::submit_test {
namespace {

namespace fs = std::filesystem;
using test::read_bytes;
using test::write_bytes;
using Words = std::vector<std::string>;

/// A cluster of scripts: bin/ is what the batch script finds in PATH.
class FakeCluster {
 public:
  explicit FakeCluster(const std::string& run = "runs/tiny") : run_(home_ / run) {
    fs::create_directories(run_);
    fs::create_directories(home_ / "bin");
    // Starts the step in a group of its own, as its processes elsewhere are; passes USR1 on.
    tool("srun", R"(echo "srun $*" >>"$HOME/calls"
trap 'echo "srun: USR1" >>"$HOME/calls"; kill -s USR1 -- -$step' USR1
while [ "$1" != bash ]; do shift; done
SLURM_PROCID=$(cat "$HOME/node") setsid "$@" &
step=$!
echo $step >"$HOME/step"
while :; do
  wait $step; code=$?
  kill -s 0 $step 2>/dev/null || break
done
[ ! -f "$HOME/full" ] || : >"$HOME/runs/tiny/slurm-7.exit" # opened, and no room for its bytes
[ ! -f "$HOME/srun_code" ] || code=$(cat "$HOME/srun_code")
exit $code)");
    tool("scancel", R"(echo "scancel $*" >>"$HOME/calls"
[ ! -f "$HOME/no_scancel" ] || exit 1
kill -s USR1 -- -$(cat "$HOME/step"))");
    tool("scontrol", R"(echo "scontrol $*" >>"$HOME/calls"
[ "$1" = requeue ] || echo "JobId=7 JobState=$(cat "$HOME/state") Reason=None")");
    write_bytes(home_ / "state", "RUNNING");
    write_bytes(home_ / "node", "0");
    trainer("exit 0");
  }

  /// What stands for `actortrain`.
  void trainer(const std::string& lines) const { tool("trainer", lines); }
  void note(const char* name, const std::string& text) const { write_bytes(home_ / name, text); }

  [[nodiscard]] BatchJob job() const {
    return {.name = "tiny",
            .nodes = 2,
            .cpus = 3,
            .steps = 20,
            .restarts = 2,
            .run_directory = run_,
            .work_directory = home_.path(),
            .words = {(home_ / "bin/trainer").string(), "run", "a.toml"},
            .cluster = {}};
  }

  [[nodiscard]] std::unique_ptr<test::Process> start(const BatchJob& job) const {
    const auto script = batch_script(job);
    REQUIRE(script.ok());
    write_bytes(home_ / "script", *script);
    return std::make_unique<test::Process>(
        Words{"/usr/bin/env", "HOME=" + home_.path().string(), "SLURM_JOB_ID=7",
              "PATH=" + (home_ / "bin").string() + ":/usr/bin:/bin", "/bin/bash",
              (home_ / "script").string()});
  }
  [[nodiscard]] test::Ended run() const { return start(job())->wait(); }

  /// A job that trains: its trainer is ready, and the batch script waits for the step.
  [[nodiscard]] std::unique_ptr<test::Process> start_and_train() const {
    BatchJob watched = job();
    watched.cluster.name = "watched";
    watched.cluster.before = {R"(wait() { echo >>"$HOME/waits"; builtin wait "$@"; })"};
    auto batch = start(watched);
    REQUIRE(batch->until([&] {
      return fs::exists(home_ / "ready") && waits() > 0 && fs::exists(home_ / "step") &&
             fs::file_size(home_ / "step") > 0;
    }));
    return batch;
  }
  /// How often the batch script began to wait: once more after each signal.
  [[nodiscard]] std::uintmax_t waits() const {
    return fs::exists(home_ / "waits") ? fs::file_size(home_ / "waits") : 0;
  }

  [[nodiscard]] std::string calls() const {
    return fs::exists(home_ / "calls") ? read_bytes(home_ / "calls") : "";
  }
  [[nodiscard]] bool called(const std::string& part) const {
    return calls().find(part) != std::string::npos;
  }
  [[nodiscard]] fs::path marker() const { return finished_marker(run_); }
  [[nodiscard]] fs::path operator/(const char* name) const { return home_ / name; }

 private:
  void tool(const char* name, const std::string& lines) const {
    const fs::path path = home_ / "bin" / name;
    write_bytes(path, std::string("#!/bin/bash\n").append(lines).append("\n"));
    fs::permissions(path, fs::perms::owner_all);
  }

  test::TempDirectory home_;
  fs::path run_;
};

/// Trains until the signal comes that it has a trap for. `wait` ends at a signal, which a program
/// in the foreground would hold back; what is waited for ends with who waits.
constexpr const char* kTrains =
    "touch \"$HOME/ready\"\nwhile :; do tail -f --pid=$$ /dev/null & wait; done";

/// Trains until it is told to stop, then ends with `code`.
std::string patient(int code) {
  return fmt::format("trap 'echo told >>\"$HOME/told\"; exit {}' USR1\n", code) + kTrains;
}

SubmitOptions accepted(std::initializer_list<const char*> words) {
  std::vector<const char*> argv = {"actortrain", "submit"};
  argv.insert(argv.end(), words);
  const auto command = parse(static_cast<int>(argv.size()), argv.data());
  INFO((command.ok() ? "" : command.error().message));
  REQUIRE(command.ok());
  return std::any_cast<SubmitOptions>(command->options);
}

TEST_CASE("submit: the command line", "[actors][cli][submit]") {
  const auto plain = accepted({"a.toml"});
  CHECK(plain.config == "a.toml");
  CHECK_FALSE(plain.nodes.has_value());
  CHECK_FALSE(plain.dry_run);
  const auto full = accepted(
      {"a.toml", "--nodes",      "2",   "--time", "4:00:00",     "--profile", "p",    "--account",
       "def-x",  "--partition",  "gpu", "--gpus", "h100:4",      "--mem",     "320G", "--cpus",
       "8",      "--constraint", "a&b", "--set",  "run.steps=3", "--dry-run"});
  CHECK(full.nodes == 2);
  CHECK(full.time == "4:00:00");
  CHECK(full.profile == "p");
  CHECK(full.account == "def-x");
  CHECK(full.partition == "gpu");
  CHECK(full.gpus == "h100:4");
  CHECK(full.mem == "320G");
  CHECK(full.cpus == 8);
  CHECK(full.constraint == "a&b");
  CHECK(full.set == Words{"run.steps=3"});
  CHECK(full.dry_run);
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"--nodes", "0"},     {"--cpus", "-1"},  {"--time", "4h"},
      {"--account", "a b"}, {"--account", ""}, {"--partition", "a\nb"},
      {"--gpus", "a'b"},    {"--mem", "lots"}, {"--constraint", "a;b"}};
  for (const auto& [option, value] : wrong) {
    const char* argv[] = {"actortrain", "submit", "a.toml", option, value};
    const auto command = parse(5, argv);
    INFO(option << " " << value);
    REQUIRE_FALSE(command.ok());
    CHECK(command.error().message.starts_with("actortrain submit: "));
    CHECK(command.error().message.find(option) != std::string::npos);
    CHECK(command.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("submit: the lines for Slurm", "[actors][submit]") {
  BatchJob job{.name = "tiny run",
               .nodes = 2,
               .cpus = 8,
               .steps = 20,
               .run_directory = "/runs/tiny",
               .work_directory = "/home/me",
               .words = {"/bin/actortrain", "run", "a.toml"},
               .cluster = {}};
  job.cluster.time = "4:00:00";
  job.cluster.gpus = "h100:4";
  job.cluster.mem = "320G";
  job.cluster.account = "def-x";
  job.cluster.partition = "gpu";
  job.cluster.constraint = "nvme";
  const auto script = batch_script(job);
  REQUIRE(script.ok());
  CHECK(
      script->starts_with("#!/bin/bash\n"
                          "#SBATCH --job-name=tiny_run\n"
                          "#SBATCH --nodes=2\n"
                          "#SBATCH --ntasks-per-node=1\n"
                          "#SBATCH --cpus-per-task=8\n"
                          "#SBATCH --gpus-per-node=h100:4\n"
                          "#SBATCH --mem=320G\n"
                          "#SBATCH --time=4:00:00\n"
                          "#SBATCH --account=def-x\n"
                          "#SBATCH --partition=gpu\n"
                          "#SBATCH --constraint=nvme\n"
                          "#SBATCH --output=/runs/tiny/slurm-%j.out\n"
                          "#SBATCH --open-mode=append\n"
                          "#SBATCH --signal=B:USR1@180\n"
                          "#SBATCH --requeue\n"
                          "#SBATCH --no-kill\n\n"));
  for (const char* line :
       {"set -euo pipefail\n", "\ncd '/home/me'\n",
        "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=8 --kill-on-bad-exit=1",
        " '/bin/actortrain' 'run' 'a.toml' &\n"}) {
    INFO(*script);
    CHECK(script->find(line) != std::string::npos);
  }
  job.cluster = {};
  job.cluster.time = "2";  // a warning three minutes before the end of two would come at once
  const auto plain = batch_script(job);
  REQUIRE(plain.ok());
  CHECK(plain->find("--signal=B:USR1@30\n") != std::string::npos);
  CHECK(plain->find("--account") == std::string::npos);
  CHECK(plain->find("module load") == std::string::npos);
}

TEST_CASE("submit: after the last step a marker, and no job any more", "[actors][submit][SB-1]") {
  const FakeCluster cluster;
  const auto first = cluster.run();
  INFO(first.err << first.out << cluster.calls());
  CHECK(first.exit_code == 0);
  CHECK(read_bytes(cluster.marker()) == "20\n");
  CHECK(cluster.called("srun --nodes=2"));
  CHECK_FALSE(cluster.called("scontrol requeue"));
  cluster.note("calls", "");
  cluster.trainer("exit 75");
  const auto again = cluster.run();
  CHECK(again.exit_code == 0);
  CHECK(cluster.calls().empty());
  BatchJob longer = cluster.job();
  longer.steps = 21;
  CHECK(cluster.start(longer)->wait().exit_code == 75);
  CHECK(cluster.called("scontrol requeue 7"));
  cluster.note("calls", "");
  write_bytes(cluster.marker(), "a[$(touch x)]\n");
  CHECK(cluster.run().exit_code == 75);  // no number: as if it were not there
}

TEST_CASE("submit: a run that stopped after saving is queued again", "[actors][submit][SB-1]") {
  const FakeCluster cluster;
  cluster.trainer("exit 75");
  const auto plain = cluster.run();
  CHECK(plain.exit_code == 75);
  CHECK(cluster.called("scontrol requeue 7"));
  CHECK_FALSE(fs::exists(cluster.marker()));
  SECTION("also if srun speaks for a task that it ended itself") {
    cluster.note("calls", "");
    cluster.note("srun_code", "143");
    CHECK(cluster.run().exit_code == 75);
    CHECK(cluster.called("scontrol requeue 7"));
  }
  SECTION("also if a full disk kept the head's exit code from being noted") {
    cluster.note("calls", "");
    cluster.note("full", "");
    const auto full = cluster.run();
    CHECK(full.exit_code == 75);
    CHECK(full.err.find("the head's exit code could not be kept; srun's is 75") !=
          std::string::npos);
    CHECK(cluster.called("scontrol requeue 7"));
  }
  SECTION("but not if Slurm is ending the job") {
    const char* state = GENERATE("COMPLETING", "CANCELLED", "PENDING");
    cluster.note("calls", "");
    cluster.note("state", state);
    CHECK(cluster.run().exit_code == 75);
    CHECK_FALSE(cluster.called("scontrol requeue"));
  }
}

TEST_CASE("submit: a run that is done is done where that cannot be noted",
          "[actors][submit][SB-1]") {
  const FakeCluster cluster;
  fs::create_directories(cluster / "runs/tiny/finished.7");
  const auto done = cluster.run();
  CHECK(done.exit_code == 0);
  CHECK(done.err.find("could not be noted") != std::string::npos);
}

TEST_CASE("submit: a failure or a mistake ends the chain", "[actors][submit][SB-1]") {
  const FakeCluster cluster;
  const int code = GENERATE(1, 2, 130);
  cluster.trainer(fmt::format("exit {}", code));
  CHECK(cluster.run().exit_code == code);
  CHECK_FALSE(cluster.called("scontrol"));
  CHECK_FALSE(fs::exists(cluster.marker()));
}

TEST_CASE("submit: a head that was killed is started again if it had saved something",
          "[actors][submit][SB-1]") {
  const FakeCluster cluster;
  const std::string checkpoints = (cluster / "runs/tiny/checkpoints").string();
  cluster.trainer("kill -KILL $$");
  const auto nothing = cluster.run();
  CHECK(nothing.exit_code == 137);
  CHECK_FALSE(cluster.called("scontrol"));
  CHECK(nothing.err.find("before it saved anything") != std::string::npos);
  for (const char* step : {"step-00000010", "step-20000000", "step-100000000"}) {
    cluster.note("calls", "");
    cluster.trainer(fmt::format("mkdir -p '{}/{}'; kill -KILL $$", checkpoints, step));
    CHECK(cluster.run().exit_code == 137);
    CHECK(cluster.called("scontrol requeue 7"));
    cluster.note("calls", "");
    CHECK(cluster.run().exit_code == 137);  // the same step again
    CHECK_FALSE(cluster.called("scontrol requeue"));
  }
}

TEST_CASE("submit: a launcher of another node that is killed is started again",
          "[actors][submit][P4]") {
  const FakeCluster cluster;
  const std::string count = "echo start >>\"$HOME/starts\"\n";
  const auto starts = [&] { return read_bytes(cluster / "starts").size() / 6; };
  SECTION("until it ends by itself") {
    cluster.note("node", "1");
    cluster.trainer(count + "[ $(wc -l <\"$HOME/starts\") -gt 2 ] || kill -KILL $$");
    CHECK(cluster.run().exit_code == 0);
    CHECK(starts() == 3);
  }
  SECTION("not for ever") {
    cluster.note("node", "1");
    cluster.trainer(count + "kill -KILL $$");
    CHECK(cluster.run().exit_code == 137);
    CHECK(starts() == 3);
  }
  SECTION("but not after an end of its own") {
    cluster.note("node", "1");
    cluster.trainer(count + "exit 1");
    CHECK(cluster.run().exit_code == 1);
    CHECK(starts() == 1);
  }
  SECTION("but not the head") {
    cluster.trainer(count + "kill -KILL $$");
    CHECK(cluster.run().exit_code == 137);
    CHECK(starts() == 1);
  }
  SECTION("but not when the job is told to end; and what was started again is told, too") {
    cluster.note("node", "1");
    cluster.trainer(
        count +
        "trap 'kill -KILL $$' USR1\n[ $(wc -l <\"$HOME/starts\") -gt 1 ] || kill -KILL $$\n" +
        kTrains);
    const auto batch = cluster.start_and_train();
    batch->send(SIGUSR1);
    CHECK(batch->wait().exit_code == 137);
    CHECK(starts() == 2);
  }
}

TEST_CASE("submit: the warning reaches the step", "[actors][submit][SB-2]") {
  const FakeCluster cluster;
  cluster.trainer(patient(75));
  const bool reached = GENERATE(true, false);
  if (!reached) {
    cluster.note("no_scancel", "");
  }
  const auto batch = cluster.start_and_train();
  batch->send(SIGUSR1);
  const auto ended = batch->wait();
  INFO(ended.err << ended.out << cluster.calls());
  CHECK(ended.exit_code == 75);
  CHECK(read_bytes(cluster / "told") == "told\n");
  CHECK(cluster.called("scancel --signal=USR1 7"));
  CHECK(cluster.called("srun: USR1") == !reached);
  CHECK(cluster.called("scontrol requeue 7"));
}

TEST_CASE("submit: a job that is told to end waits for its step", "[actors][submit][SB-1]") {
  const FakeCluster cluster;
  cluster.trainer(patient(75));
  const auto batch = cluster.start_and_train();
  cluster.note("state", "COMPLETING");
  // Once more, as the first one may come before the script waits: that would end no wait.
  REQUIRE(batch->until([&] {
    batch->send(SIGTERM);
    return cluster.waits() > 1;
  }));
  CHECK(batch->running());
  ::kill(-std::stoi(read_bytes(cluster / "step")), SIGUSR1);  // the step's own, as Slurm does it
  CHECK(batch->wait().exit_code == 75);
  CHECK_FALSE(cluster.called("scontrol requeue"));
}

TEST_CASE("submit: whatever paths and values hold arrives as it is", "[actors][submit][SB-3]") {
  const std::string nasty = "it's a \"$HOME\" `id` $(id) \\ %j #x *; & | <> ! é {}";
  const FakeCluster cluster("a 'b' \"$c\" %d `e`");
  cluster.trainer(R"(printf '%s\n' "$PWD" "$@" "$VALUE" "$LINE" >"$HOME/words")");
  BatchJob job = cluster.job();
  job.name = nasty;
  job.work_directory = cluster / "a 'b' \"$c\" %d `e`";
  job.words = {(cluster / "bin/trainer").string(), "--set", "run.name=" + nasty, nasty, ""};
  job.cluster.name = nasty;
  job.cluster.environment = {{"VALUE", nasty}};
  job.cluster.before = {"export LINE=\"of ${UNSET-}the profile\""};
  const auto batch = cluster.start(job);
  const auto ended = batch->wait();
  INFO(ended.err << read_bytes(cluster / "script"));
  CHECK(ended.exit_code == 0);
  CHECK(ended.err.empty());
  CHECK(read_bytes(cluster / "words") ==
        fmt::format("{}\n--set\nrun.name={}\n{}\n\n{}\nof the profile\n",
                    job.work_directory.string(), nasty, nasty, nasty));
  CHECK(read_bytes(cluster.marker()) == "20\n");
  // The output has no line for Slurm then, which has rules of its own, but is in its place.
  CHECK(read_bytes(cluster.marker().parent_path() / "slurm-7.out").find("all 20 steps") !=
        std::string::npos);
  test::Process check({"/bin/bash", "-n", (cluster / "script").string()});
  CHECK(check.wait().exit_code == 0);
}

TEST_CASE("submit: a line break is refused", "[actors][submit][SB-3][mistakes]") {
  const FakeCluster cluster;
  const auto refused = [&](auto change) {
    BatchJob job = cluster.job();
    change(job);
    const auto script = batch_script(job);
    REQUIRE_FALSE(script.ok());
    CHECK(script.error().exit_code() == 2);
    CHECK(script.error().message.find('\n') == std::string::npos);
  };
  refused([](BatchJob& job) { job.run_directory = "/a\nb"; });
  refused([](BatchJob& job) { job.work_directory = "/a\rb"; });
  refused([](BatchJob& job) { job.words.push_back(std::string("a\nb")); });
  refused([](BatchJob& job) { job.cluster.environment = {{"A", "a\nb"}}; });
}

TEST_CASE("submit: modules are loaded with what the login shell knows", "[actors][submit]") {
  const FakeCluster cluster;
  BatchJob job = cluster.job();
  job.cluster.modules = {"gcc/12", "cuda"};
  job.cluster.before = {"module list"};
  const auto script = batch_script(job);
  REQUIRE(script.ok());
  CHECK(script->find("module load 'gcc/12'\nmodule load 'cuda'\nmodule list\n") !=
        std::string::npos);
  CHECK(cluster.start(job)->wait().exit_code != 0);  // there is no such command: the job ends
  CHECK_FALSE(cluster.called("srun"));
}

}  // namespace
}  // namespace train::cli::submit_test
