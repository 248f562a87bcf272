// SIGKILL at each kind of call that a save or a retirement makes on the disk, in each of a run's
// processes; and of any of them while another is in the middle of a step. Real processes. Which
// call of its kind, and which step, follows from --rng-seed. `./dev test soak` kills before and
// after every kind of call of every process, again and again.

#include <random>
#include <set>

#include "tests/integration/sites/endless_run.hpp"
#include "tests/integration/sites/killed_runs.hpp"
#include "tests/support/processes/script.hpp"

using namespace train::test;

namespace {

constexpr std::int64_t kSteps = 200;

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

// One start that is to be killed there.
struct Kill {
  std::string when;  // before, after, torn
  std::string what;
  int number = 1;  // of its kind
  std::string role;

  [[nodiscard]] std::string text() const {
    return fmt::format("{}:{}:{}:{}", when, what, number, role);
  }
  [[nodiscard]] std::string kind() const { return (role == "head" ? "head " : "rank ") + what; }
};

// Every kind of call of the head, and of a rank that makes such a call, before or after it; a write
// also half-way. `complete`: of every rank, before and after it.
std::vector<Kill> kills_of(const Calls& calls, std::mt19937& random, bool complete) {
  std::vector<Kill> kills;
  const auto add = [&](const std::string& role, const std::string& what) {
    // From the first to the last but a few: the last ones may be skipped by chance.
    const int spread = std::max(1, calls.at(role).at(what) * 3 / 4);
    Words when = complete            ? Words{"before", "after"}
                 : random() % 2 == 0 ? Words{"before"}
                                     : Words{"after"};
    if (what == "write") {
      when.emplace_back("torn");
    }
    for (const std::string& each : when) {
      kills.push_back({each, what, 1 + static_cast<int>(random() % spread), role});
    }
  };
  std::map<std::string, Words> ranks;  // that make a call of a kind
  for (const auto& [role, kinds] : calls) {
    for (const auto& [what, count] : kinds) {
      if (complete || role == "head") {
        add(role, what);
      } else {
        ranks[what].push_back(role);
      }
    }
  }
  for (const auto& [what, roles] : ranks) {
    add(roles[random() % roles.size()], what);
  }
  return kills;
}

// Starts of runs in one place or in two that are killed, one after the other.
class KilledStarts {
 public:
  explicit KilledStarts(Words places) : places_(std::move(places)) {}

  // What was killed, by process and kind of call: "head write".
  [[nodiscard]] const std::set<std::string>& struck() const { return struck_; }
  [[nodiscard]] std::string counts() const {
    return fmt::format("{} kills in {} runs, {} too late", kills_, runs_, too_late_);
  }

  void kill_at(Kill kill) {
    if (!strike(kill)) {  // the run was done before the call came: a new one has its first
      ++too_late_;
      kill.number = 1;
      INFO("kill " << kill.text());
      CHECK(strike(kill));
    }
  }
  void finish() {
    if (run_) {
      finish_and_compare(*run_, unbroken_results());
    }
    run_.reset();
  }

 private:
  bool strike(const Kill& kill) {
    if (!run_) {
      run_ = std::make_unique<KilledRun>(killed_run_keys(kSteps, places_));
      ++runs_;
    }
    const Ended ended =
        run_->start(faulty_program(), {"ACTORTRAIN_TEST_KILL=" + kill.text()})->wait();
    INFO("kill " << kill.text());
    INFO("stderr: " << ended.err);
    const bool killed =
        kill.role == "head"
            ? ended.signal == SIGKILL
            : ended.exit_code == 1 && has(ended.err, fmt::format("rank {} failed: ", kill.role));
    CHECK((killed || ended.exit_code == 0));
    run_->check_after(ended);
    if (killed) {
      ++kills_;
      struck_.insert(kill.kind());
    }
    if (!killed || run_->committed() > kSteps - 20) {
      finish();
    }
    return killed;
  }

  Words places_;
  std::unique_ptr<KilledRun> run_;
  std::set<std::string> struck_;
  int kills_ = 0;
  int runs_ = 0;
  int too_late_ = 0;
};

// Kills at all of these kinds, at least; at others, too, if `others` or where tests soak.
void kill_everywhere(const char* name, const Words& places, const Words& kinds, bool others) {
  std::mt19937 random(Catch::rngSeed());
  const Calls calls = recorded_calls(places);
  REQUIRE(calls.size() == 3);  // the head and two ranks
  KilledStarts starts(places);
  for (int pass = 0; pass < soak(); ++pass) {
    for (const Kill& kill : kills_of(calls, random, soak() > 1)) {
      if (others || soak() > 1 || std::ranges::find(kinds, kill.kind()) != kinds.end()) {
        starts.kill_at(kill);
      }
    }
  }
  starts.finish();
  fmt::print("kill points, {}: {}\n", name, starts.counts());
  for (const std::string& kind : kinds) {
    INFO(kind);
    CHECK(starts.struck().contains(kind));
  }
}

}  // namespace

TEST_CASE("kill points: a run in two places survives SIGKILL at each kind of call of each process",
          "[integration][.full][soak][kill_points][P1][P3][CK-1][CK-2][CK-6][CK-7]") {
  kill_everywhere("two places", {"checkpoint.local_dir=fast"},
                  {"head write", "head sync", "head rename", "head sync_directory", "head retire",
                   "head index-put", "rank write", "rank sync", "rank rename", "rank rsync-start",
                   "rank rsync-running", "rank rsync-end"},
                  /*others=*/true);
}

// Writes and syncs before publication are killed in the case of two places, which shares their
// code.
TEST_CASE("kill points: a run in one place survives SIGKILL where it publishes and retires",
          "[integration][.full][soak][kill_points][P1][P3][CK-1][CK-2][CK-6][CK-7]") {
  kill_everywhere(
      "one place", {"checkpoint.local_dir=none"},
      {"head rename", "head sync_directory", "head retire", "head index-put", "rank rename"},
      /*others=*/false);
}

namespace {

// Which process is killed, and when: in the start, or in a step. -1: the head.
struct StrayKill {
  int victim = -1;
  int held = 0;  // The rank that is in the middle of a step.
  int call = 0;  // The backward pass of attention at which it is, of two in a step; 0: the start.
};

// Starts a run, and kills one of its processes when it has come so far. False: it was done before.
bool kill_in(const KilledRun& run, const StrayKill& kill, Ended& ended) {
  const fs::path wedge = run.site() / "wedge";
  const fs::path reached = run.site() / "reached";
  Words variables;
  if (kill.call > 0) {
    write_bytes(wedge, "");
    variables = {fmt::format("ACTORTRAIN_TEST_FAULT=wedge:{}:{}", kill.call, kill.held),
                 "ACTORTRAIN_TEST_WEDGE=" + wedge.string(),
                 "ACTORTRAIN_TEST_FAULT_STAMP=" + reached.string()};
  }
  const auto launcher = run.start(faulty_program(), variables);
  std::map<int, pid_t> workers;
  const bool there = launcher->until([&] {
    workers = workers_of(run.site().path());
    return workers.size() == 2 && (kill.call == 0 || fs::exists(reached));
  });
  if (there) {
    ::kill(kill.victim < 0 ? launcher->pid() : workers.at(kill.victim), SIGKILL);
  }
  fs::remove(wedge);
  ended = launcher->wait();
  fs::remove(reached);
  return there;
}

}  // namespace

TEST_CASE("kill points: a run survives SIGKILL of any of its processes while it starts and trains",
          "[integration][.full][soak][kill_points][P1][P3]") {
  std::mt19937 random(Catch::rngSeed());
  const int kills = 9 * soak();
  int runs = 0;
  std::map<int, int> killed;  // by rank; -1: the head
  std::unique_ptr<KilledRun> run;
  for (int done = 0; done < kills;) {
    if (!run) {
      run = std::make_unique<KilledRun>(killed_run_keys(kSteps, {"checkpoint.local_dir=fast"}));
      ++runs;
    }
    const StrayKill kill = {.victim = done % 3 - 1,
                            .held = static_cast<int>(random() % 2),
                            .call = done / 3 % 3 == 0 ? 0 : 1 + static_cast<int>(random() % 60)};
    INFO("kill of " << kill.victim << ", rank " << kill.held << " at its call " << kill.call);
    Ended ended;
    const bool there = kill_in(*run, kill, ended);
    done += there ? 1 : 0;
    killed[kill.victim] += there ? 1 : 0;
    CHECK((there || ended.exit_code == 0));
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
  fmt::print("kills in starts and steps: head {}, rank 0 {}, rank 1 {}, {} runs\n", killed[-1],
             killed[0], killed[1], runs);
}

namespace {

// In the place of rsync: of three calls one is rsync, one is an rsync that is killed when it has
// begun its file, and one dies when it has written some bytes of it, which follow from `random`.
std::string dying_rsync(const RunSite& site, std::mt19937& random) {
  const auto first = random() % 3;
  const auto bytes = random() % 100000;
  const fs::path script = write_script(
      site / "rsync",
      fmt::format("echo >> {0}/calls\nn=$(wc -l < {0}/calls)\n"
                  "[ $(((n + {1}) % 3)) = 0 ] && exec rsync \"$@\"\n"
                  "for word; do source=$directory; directory=$word; done\n"
                  "if [ $(((n + {1}) % 3)) = 1 ]; then\n"
                  "  rsync --bwlimit=300 \"$@\" & p=$!\n"
                  "  while kill -0 $p && ! ls \"$directory\".*.??????; do :; done >/dev/null 2>&1\n"
                  "  kill -9 $p\n  wait $p && exit 0\n"
                  "else\n"
                  "  head -c $(({2} * n % 100000)) \"$source\" > "
                  "\"$directory.$(basename \"$source\").torn00\"\n"
                  "fi\n"
                  "echo >> {0}/killed\nkill -9 $$",
                  site.path().string(), first, bytes));
  return "ACTORTRAIN_RSYNC=" + script.string();
}

}  // namespace

TEST_CASE("kill points: an rsync that is killed at any byte publishes nothing half",
          "[integration][.full][soak][kill_points][P3][CK-1]") {
  std::mt19937 random(Catch::rngSeed());
  const std::size_t kills = 8U * static_cast<std::size_t>(soak());
  std::size_t killed = 0;
  std::size_t calls = 0;
  const Words keys =
      killed_run_keys(500 * soak(), {"checkpoint.interval_steps=6", "run.steps_per_job=12"});
  KilledRun run(joined(keys, {"checkpoint.local_dir=fast"}));
  for (int start = 0; killed < kills; ++start) {
    REQUIRE(start < 20 * soak());
    fs::remove(run.site() / "calls");
    fs::remove(run.site() / "killed");
    const std::size_t failed = count_events(run.site().run(), "checkpoint_failed");
    const Ended ended = run.start(program(), {dying_rsync(run.site(), random)})->wait();
    INFO(ended.err);
    const auto count = [&](const char* file) {
      return fs::exists(run.site() / file) ? lines_of(read_bytes(run.site() / file)).size() : 0;
    };
    CHECK(ended.signal == 0);
    CHECK((ended.exit_code == 75 || ended.exit_code == 1));
    // A start first copies what an earlier one left on the local disk: no save of its own.
    const bool left = has(ended.err, "checkpoint_not_published ");
    const bool save = count_events(run.site().run(), "checkpoint_failed") > failed;
    CHECK((left || save) == (count("killed") > 0));
    killed += count("killed");
    calls += count("calls");
    run.check_after(ended);
    run.check_tidy();
  }
  const Ended ended = run.start(program())->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  run.check_after(ended);
  run.check_tidy();
  UnbrokenRun whole(joined(keys, {"checkpoint.interval_steps=0"}));
  whole.check_same(run.site().run(), 12);
  fmt::print("rsync killed {} times of {}\n", killed, calls);
}
