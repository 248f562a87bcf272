// A rank that is lost ends a generation of ranks, not the job: the run goes on by itself, to the
// same bits. Real processes, real signals. ACTORTRAIN_SOAK=n loses n times as many.

#include <random>

#include "tests/integration/sites/endless_run.hpp"
#include "tests/integration/sites/killed_runs.hpp"

using namespace train::test;

namespace {

constexpr std::int64_t kShortSteps = 12;

Words recovering_keys(const Words& more = {}) {
  return killed_run_keys(kShortSteps, joined({"recovery.rank_loss=respawn"}, more));
}

/// Of the unbroken run of `more`, to its end.
Words results_without_kills(const Words& more = {}) {
  const RunSite site;
  site.train(unbroken_keys(killed_run_keys(kShortSteps, more)));
  return results_of(site.run());
}

/// Steps in the journal of the run's index.
std::int64_t journalled_steps(const fs::path& run) {
  auto store = train::storage::RocksStore::open_read_only(run / "index");
  REQUIRE(store.ok());
  std::int64_t count = 0;
  REQUIRE((*store)->scan("step/", [&](std::string_view, std::string_view) {
    ++count;
    return true;
  }));
  return count;
}

/// A run without an end in sight, whose workers are killed.
class LosingRun {
 public:
  explicit LosingRun(const Words& keys)
      : run_(recovering_keys(joined(keys, {kEndless, "recovery.max_respawns=1000"}))),
        launcher_(run_.start(program())) {}

  [[nodiscard]] fs::path directory() const { return run_.site().run(); }
  [[nodiscard]] Process& launcher() { return *launcher_; }

  /// Kills those of a set of workers (bit r: rank r) that run, as soon as one of them does, and
  /// waits until their loss has been noticed.
  void kill(unsigned victims) {
    note_step();
    const bool killed = launcher_->until([&] {
      bool any = false;
      for (const auto& [rank, process] : workers_of(run_.site().path())) {
        any = ((victims >> rank & 1U) != 0 && ::kill(process, SIGKILL) == 0) || any;
      }
      return any;
    });
    INFO(launcher_->err());
    REQUIRE(killed);
    wait_for_event(run_.site(), *launcher_, "rank_lost", ++lost_);
    note_step();  // what it had come to meanwhile
  }

  /// Once all that was lost has been made good, the run stops in order, with the bits of
  /// `unbroken`.
  Ended check_good_end(UnbrokenRun& unbroken) {
    wait_for_step(directory(), *launcher_, furthest_ + 3);
    const Ended ended = stopped(*launcher_);
    INFO(ended.err);
    CHECK(count_events(directory(), "respawned") == lost_);
    run_.check_after(ended);
    run_.check_tidy();
    unbroken.check_same(directory(), furthest_);
    return ended;
  }

 private:
  void note_step() { furthest_ = std::max(furthest_, last_step(directory())); }

  KilledRun run_;
  std::unique_ptr<Process> launcher_;
  std::size_t lost_ = 0;
  std::int64_t furthest_ = 0;  // step before a loss
};

}  // namespace

TEST_CASE(
    "recovery: a job outlives kill -9 of its workers at any time, and ends with the same bits",
    "[integration][.full][soak][recovery][P1][P3][P4]") {
  static UnbrokenRun unbroken(killed_run_keys(kShortSteps, {kEndless}));
  const std::string place = GENERATE("none", "fast");
  INFO("local place " << place);
  std::mt19937 random(Catch::rngSeed());
  LosingRun run({"checkpoint.local_dir=" + place});
  for (int kill = 0; kill < 4 * soak(); ++kill) {
    wait_for_any_event(run.directory(), run.launcher(), random);
    run.kill(1U << random() % 2);
  }
  CHECK(has(run.check_good_end(unbroken).err, "SIGKILL"));
}

TEST_CASE(
    "recovery: four ranks go on from memory whichever of them are killed when, to the same bits",
    "[integration][.full][soak][recovery][P1][P4][CK-10]") {
  // Rarely saved: what is lost with the ranks comes back from memory.
  const Words shape = {kEndless, "batch.lanes=4", "checkpoint.interval_steps=150"};
  static UnbrokenRun unbroken(killed_run_keys(kShortSteps, shape));
  const std::string strategy = GENERATE("none", "full", "gradient", "hybrid");
  INFO(strategy);
  std::mt19937 random(Catch::rngSeed());
  LosingRun run(joined(
      shape,
      rank_keys(4, strategy, {"checkpoint.local_dir=none", "recovery.snapshot_interval_steps=4"})));
  wait_for_step(run.directory(), run.launcher(), 6);  // what is lost now comes back from memory
  for (int kill = 0; kill < 3 * soak(); ++kill) {
    if (kill > 0 && random() % 4 != 0) {  // else: in the start of a generation
      wait_for_step(run.directory(), run.launcher(), last_step(run.directory()) + 1 + random() % 6);
    }
    run.kill(static_cast<unsigned>(1 + random() % 15));
  }
  CHECK(has(run.check_good_end(unbroken).err, " from memory"));
  CHECK(journalled_steps(run.directory()) == last_step(run.directory()));
}

TEST_CASE("recovery: fewer ranks go on from what more of them kept in memory",
          "[integration][.full][recovery][P1][P4][CK-4][CK-10]") {
  const std::string strategy = GENERATE("none", "optimizer", "full");
  INFO(strategy);
  // Saved at the end alone, where rank 1 never gets past its first file.
  const Words shape = {"batch.lanes=3", "checkpoint.interval_steps=0"};
  static const Words unbroken = results_without_kills(shape);
  KilledRun run(recovering_keys(
      joined(shape, rank_keys(3, strategy,
                              {"checkpoint.local_dir=none", "recovery.snapshot_interval_steps=8",
                               "recovery.max_respawns=1"}))));
  const Ended ended =
      run.start(faulty_program(), {"ACTORTRAIN_TEST_KILL=before:write:1:1"})->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "respawned generation=1 step=8 ranks=3"));
  CHECK(has(ended.err, "respawned generation=2 step=8 ranks=2"));
  CHECK(has(ended.err, "respawned generation=3 step=8 ranks=2"));
  CHECK(has(ended.err, "respawned generation=4 step=8 ranks=1"));
  CHECK(count_of(ended.err, "resumed step=8 from memory") == 4);
  run.check_after(ended);
  CHECK(results_of(run.site().run()) == unbroken);
}

TEST_CASE("recovery: a stop after a start from memory saves what no checkpoint has",
          "[integration][recovery][resume][CK-10]") {
  KilledRun run(
      recovering_keys({"checkpoint.local_dir=none", kEndless, "checkpoint.interval_steps=0",
                       "recovery.snapshot_interval_steps=2"}));
  const auto launcher = run.start(program());
  // No rank begins the update after a snapshot before that is complete.
  wait_for_step(run.site(), *launcher, 8);
  const auto workers = workers_of(run.site().path());
  REQUIRE(workers.contains(0));
  REQUIRE(::kill(workers.at(0), SIGKILL) == 0);
  wait_for_event(run.site(), *launcher, "respawned");
  launcher->send(SIGTERM);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  CHECK(has(ended.err, " from memory"));
  run.check_after(ended);
  const auto saved = checkpoint_steps(run.site().run());
  REQUIRE(saved.size() == 1);
  CHECK(saved.back() >= 4);
}

TEST_CASE("recovery: snapshots that no memory is left for are refused in one line",
          "[integration][recovery][mistakes]") {
  const KilledRun run(recovering_keys({"checkpoint.local_dir=none"}));
  // The kernel counts shared memory as a file.
  const Ended ended =
      Process({"/bin/sh", "-c", "ulimit -f 100; exec \"$@\"", "sh", program(), "run", "tiny.toml",
               "--set", "parallel.ranks=2", "--set", "checkpoint.local_dir=none"},
              run.site().path())
          .wait();
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "recovery.snapshot_interval_steps = 0"));
  CHECK(has(ended.err, "ulimit -f"));
}

TEST_CASE("recovery: where a rank is lost again and again the run goes on with fewer",
          "[integration][.full][recovery][P1][P4]") {
  KilledRun run(recovering_keys({"checkpoint.local_dir=none", "recovery.max_respawns=1",
                                 "recovery.snapshot_interval_steps=0"}));
  // Rank 1 never gets past its first file.
  const Ended ended =
      run.start(faulty_program(), {"ACTORTRAIN_TEST_KILL=before:write:1:1"})->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(count_of(ended.err, "rank_lost rank 1 ") == 2);
  CHECK(has(ended.err, "respawned generation=1 step=0 ranks=2"));
  CHECK(has(ended.err, "respawned generation=2 step=0 ranks=1"));
  run.check_after(ended);
  CHECK(results_of(run.site().run()) == results_without_kills());
}

TEST_CASE("recovery: a stop that comes while ranks are started again is heeded",
          "[integration][.full][recovery][resume]") {
  KilledRun run(recovering_keys({"checkpoint.local_dir=none", kEndless}));
  const auto launcher = run.start(program());
  wait_for_step(run.site(), *launcher, 1);
  const auto workers = workers_of(run.site().path());
  REQUIRE(workers.contains(0));
  REQUIRE(::kill(workers.at(0), SIGKILL) == 0);
  wait_for_event(run.site(), *launcher, "rank_lost");
  launcher->send(SIGTERM);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  run.check_after(ended);
}

TEST_CASE("recovery: ranks that gave up a head that stood still are started again",
          "[integration][recovery][P4]") {
  // As where a batch system stops all processes of a job for a while: each finds the other silent.
  const RunSite site;
  const auto head = site.start_run(rank_keys(2, "full", {kEndless, "recovery.max_respawns=10"}));
  wait_for_step(site, *head, 5);
  head->send(SIGSTOP);
  REQUIRE(comes_true([&] { return workers_of(site.path()).empty(); }));
  head->send(SIGCONT);
  wait_for_event(site.run(), *head, "respawned", 1);
  wait_for_step(site, *head, last_step(site.run()) + 5);
  const Ended ended = stopped(*head);
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
}
