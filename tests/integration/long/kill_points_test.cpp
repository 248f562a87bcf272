// SIGKILL at each kind of call that a save or a retirement makes on the disk, in each of a run's
// processes, each kind of point in three passes; and at any time, 60 times. Real processes.
// ACTORTRAIN_SOAK=n goes on n times as long.

#include <random>

#include "tests/integration/killed_runs.hpp"
#include "tests/support/processes/script.hpp"

using namespace train::test;

namespace {

constexpr std::int64_t kSteps = 400;
constexpr int kPasses = 3;

const Words& unbroken_results() {
  static const Words results = [] {
    const RunSite site;
    site.train(joined(killed_run_keys(kSteps), {"checkpoint.interval_steps=0"}));
    return results_of(site.run());
  }();
  return results;
}

// Calls and points of a run's processes: role, what, how often.
using Calls = std::map<std::string, std::map<std::string, int>>;

// What a run of three saves calls.
Calls recorded_calls(const Words& places) {
  const KilledRun run(killed_run_keys(12, joined(places, {"schedule.warmup_steps=2"})));
  const TempDirectory trace;
  const Ended ended =
      run.start(faulty_program(), {"ACTORTRAIN_TEST_TRACE=" + trace.path().string()})->wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  Calls calls;
  for (const std::string& role : names_in(trace.path())) {
    for (const std::string& line : lines_of(read_bytes(trace / role))) {
      ++calls[role][line.substr(0, line.find(' '))];
    }
  }
  return calls;
}

// Every kind of call of every process, before and after it (a write also half-way); which one of
// its kind depends on the pass.
std::vector<std::string> kills_of(const Calls& calls, int pass) {
  std::vector<std::string> kills;
  for (const auto& [role, kinds] : calls) {
    for (const auto& [what, count] : kinds) {
      const auto add = [&](const char* when) {
        // From the first to the last but a few: the last ones may be skipped by chance.
        const int spread = std::max(1, count * 3 / 4);
        const int number = 1 + static_cast<int>(kills.size() * 7 + pass * 5) % spread;
        kills.push_back(fmt::format("{}:{}:{}:{}", when, what, number, role));
      };
      add("before");
      add("after");
      if (what == "write") {
        add("torn");
      }
    }
  }
  return kills;
}

struct Counts {
  int kills = 0;
  int too_late = 0;  // the run was done before the call came
  int runs = 0;
};

// One start that is to be killed at a point; true if it was.
bool kill_at(KilledRun& run, const std::string& point) {
  const std::string role = point.substr(point.rfind(':') + 1);
  const Ended ended = run.start(faulty_program(), {"ACTORTRAIN_TEST_KILL=" + point})->wait();
  INFO("kill " << point);
  INFO("stderr: " << ended.err);
  const bool killed = role == "head" ? ended.signal == SIGKILL
                                     : ended.exit_code == 1 &&
                                           has(ended.err, fmt::format("rank {} failed: ", role));
  CHECK((killed || ended.exit_code == 0));
  run.check_after(ended);
  return killed;
}

Counts kill_everywhere(const Words& places, int passes) {
  const Calls calls = recorded_calls(places);
  REQUIRE(calls.size() == 3);  // the head and two ranks
  Counts counts;
  std::unique_ptr<KilledRun> run;
  const auto finish = [&] {
    if (run) {
      finish_and_compare(*run, unbroken_results());
    }
    run.reset();
  };
  for (int pass = 0; pass < passes; ++pass) {
    for (const std::string& point : kills_of(calls, pass)) {
      if (!run) {
        run = std::make_unique<KilledRun>(killed_run_keys(kSteps, places));
        ++counts.runs;
      }
      const bool killed = kill_at(*run, point);
      ++(killed ? counts.kills : counts.too_late);
      if (!killed || run->committed() > kSteps - 20) {
        finish();
      }
    }
  }
  finish();
  return counts;
}

}  // namespace

TEST_CASE("kill points: a run in two places survives SIGKILL at each kind of call of each process",
          "[integration][.full][kill_points][P1][P3][CK-1][CK-2][CK-6][CK-7]") {
  const Words places = {"checkpoint.local_dir=fast"};
  const Calls calls = recorded_calls(places);
  for (const char* what : {"write", "sync", "rename", "sync_directory", "retire", "index-put"}) {
    INFO("head: " << what);
    CHECK(calls.at("head").contains(what));
  }
  for (const char* what :
       {"write", "sync", "rename", "rsync-start", "rsync-running", "rsync-end"}) {
    INFO("rank 1: " << what);
    CHECK(calls.at("1").contains(what));
  }
  const Counts counts = kill_everywhere(places, kPasses * soak());
  fmt::print("kill points, two places: {} kills in {} runs, {} too late\n", counts.kills,
             counts.runs, counts.too_late);
  CHECK(counts.kills > kPasses * 40);
  CHECK(counts.too_late * 5 < counts.kills);
}

TEST_CASE("kill points: a run in one place survives SIGKILL at each kind of call of each process",
          "[integration][.full][kill_points][P1][P3][CK-1][CK-2][CK-6][CK-7]") {
  const Counts counts = kill_everywhere({"checkpoint.local_dir=none"}, kPasses * soak());
  fmt::print("kill points, one place: {} kills in {} runs, {} too late\n", counts.kills,
             counts.runs, counts.too_late);
  CHECK(counts.kills > kPasses * 25);
  CHECK(counts.too_late * 5 < counts.kills);
}

TEST_CASE("kill points: a run survives SIGKILL of any of its processes at any time",
          "[integration][.full][kill_points][P1][P3]") {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  const int kills = 60 * soak();
  int runs = 0;
  std::map<int, int> killed;  // by rank; -1: the head
  std::unique_ptr<KilledRun> run;
  int done = 0;
  for (int i = 0; done < kills && i < 6 * kills; ++i) {  // some starts end before they are killed
    if (!run) {
      run = std::make_unique<KilledRun>(killed_run_keys(kSteps, {"checkpoint.local_dir=fast"}));
      ++runs;
    }
    const auto launcher = run->start(program());
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1200));
    const int rank = static_cast<int>(random() % 3) - 1;
    const auto workers = workers_of(run->site().path());
    const bool worker = rank >= 0 && workers.contains(rank);
    const pid_t victim = worker ? workers.at(rank) : launcher->pid();
    if (launcher->running()) {
      ::kill(victim, SIGKILL);
      ++killed[worker ? rank : -1];
      ++done;
    }
    const Ended ended = launcher->wait();
    CHECK((ended.signal == SIGKILL || ended.exit_code == 1 || ended.exit_code == 0));
    run->check_after(ended);
    if (ended.exit_code == 0) {
      finish_and_compare(*run, unbroken_results());
      run.reset();
    }
  }
  if (run) {
    finish_and_compare(*run, unbroken_results());
  }
  fmt::print("random kills: seed {}, head {}, rank 0 {}, rank 1 {}, {} runs\n", seed, killed[-1],
             killed[0], killed[1], runs);
  CHECK(done == kills);
}

TEST_CASE("kill points: an rsync that is killed at any byte publishes nothing half",
          "[integration][.full][kill_points][P3][CK-1]") {
  // A run that computes fast copies few of its checkpoints: runs follow until enough were struck.
  const std::size_t kills = 8U * static_cast<std::size_t>(soak());
  std::size_t killed = 0;
  std::size_t calls = 0;
  std::size_t runs = 0;
  for (; killed < kills && runs < 4 * kills; ++runs) {
    KilledRun run(killed_run_keys(kSteps, {"checkpoint.local_dir=fast"}));
    // Two of three are killed, a random time after their start; slow enough to be under way then.
    const auto rsync = write_script(
        run.site() / "rsync",
        fmt::format(
            "echo >> {0}/calls\nn=$(wc -l < {0}/calls)\n"
            "[ $((n % 3)) = 0 ] && exec rsync \"$@\"\n"
            "rsync --bwlimit=300 \"$@\" & p=$!\n"
            "sleep 0.$(od -An -N2 -tu2 /dev/urandom | awk '{{printf \"%03d\", $1 % 250}}')\n"
            "kill -9 $p\nwait $p\nended=$?\n"
            "[ $ended = 137 ] && echo >> {0}/killed\nexit $ended",
            run.site().path().string()));
    const Ended ended = run.start(program(), {"ACTORTRAIN_RSYNC=" + rsync.string()})->wait();
    INFO(ended.err);
    const auto count = [&](const char* file) {
      return fs::exists(run.site() / file) ? lines_of(read_bytes(run.site() / file)).size() : 0;
    };
    CHECK(ended.signal == 0);
    CHECK((ended.exit_code == 0 || ended.exit_code == 1));
    CHECK(has(ended.err, "checkpoint_failed") == (count("killed") > 0));
    killed += count("killed");
    calls += count("calls");
    run.check_after(ended);
    run.check_tidy();
    finish_and_compare(run, unbroken_results());
    CHECK(run.committed() == kSteps);
  }
  fmt::print("rsync killed {} times of {}, {} runs\n", killed, calls, runs);
  CHECK(killed >= kills);
}
