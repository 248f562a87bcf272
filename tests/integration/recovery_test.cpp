// A rank that is lost ends a generation of ranks, not the job: the run goes on by itself, to the
// same bits. Real processes, real signals.

#include <random>

#include "tests/integration/endless_run.hpp"
#include "tests/integration/killed_runs.hpp"

using namespace train::test;

namespace {

constexpr std::int64_t kKilledSteps = 800;

Words recovering_keys(const Words& more = {}) {
  return killed_run_keys(kKilledSteps, joined({"recovery.rank_loss=respawn"}, more));
}

Words results_without_kills(const Words& keys) {
  const RunSite site;
  site.train(keys);
  return results_of(site.run());
}

const Words& unbroken_results() {
  static const Words results = results_without_kills(killed_run_keys(kKilledSteps));
  return results;
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

}  // namespace

TEST_CASE(
    "recovery: a job outlives kill -9 of its workers at any time, and ends with the same bits",
    "[integration][.full][recovery][P1][P3][P4]") {
  const char* const place = GENERATE("none", "fast");
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  const auto wanted = static_cast<std::size_t>(8 * soak());
  const Words keys = recovering_keys(
      {fmt::format("checkpoint.local_dir={}", place), "recovery.max_respawns=1000"});
  std::size_t kills = 0;
  std::int64_t slowest_ms = 0;
  while (kills < wanted) {  // run after run, where one is not long enough
    KilledRun run(keys);
    const auto launcher = run.start(program());
    std::size_t lost = 0;
    while (kills < wanted && launcher->running()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 300));
      const auto workers = workers_of(run.site().path());
      const auto victim = workers.find(static_cast<int>(random() % 2));
      if (victim == workers.end() || ::kill(victim->second, SIGKILL) != 0) {
        continue;  // between two generations, or at the end
      }
      const auto killed = std::chrono::steady_clock::now();
      ++kills;
      ++lost;
      if (launcher->until([&] { return count_of(launcher->err(), "rank_lost ") >= lost; })) {
        slowest_ms = std::max(slowest_ms, elapsed_ms(killed));
      }
    }
    const Ended ended = launcher->wait();
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    // The last one may have hit a worker that had done its work.
    CHECK(count_of(ended.err, "respawned generation=") + 1 >= lost);
    CHECK((lost < 2 || has(ended.err, "SIGKILL")));
    run.check_after(ended);
    run.check_tidy();
    CHECK(results_of(run.site().run()) == unbroken_results());
  }
  fmt::print("recovery: seed {}, {} kills, local place {}, noticed within {} ms\n", seed, kills,
             place, slowest_ms);
}

TEST_CASE(
    "recovery: four ranks go on from memory whichever of them are killed when, to the same bits",
    "[integration][.full][recovery][P1][P4][CK-10]") {
  static constexpr std::int64_t kFourSteps = 400;
  // Rarely saved: what is lost with the ranks comes back from memory.
  const Words shape = {fmt::format("run.steps={}", kFourSteps), "batch.lanes=4",
                       "checkpoint.interval_steps=150"};
  static const Words unbroken = results_without_kills(killed_run_keys(kKilledSteps, shape));
  const char* const strategy = GENERATE("none", "full", "gradient", "hybrid");
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  const auto wanted = static_cast<std::size_t>(10 * soak());
  Words keys = joined(shape, {"parallel.ranks=4", fmt::format("parallel.strategy={}", strategy),
                              "checkpoint.local_dir=none", "recovery.snapshot_interval_steps=4",
                              "recovery.max_respawns=1000"});
  if (std::string(strategy) == "hybrid") {
    keys.emplace_back("parallel.group=2");
  }
  KilledRun run(recovering_keys(keys));
  std::size_t kills = 0;
  std::size_t from_memory = 0;
  while (kills < wanted || from_memory == 0) {  // run after run, where one is not long enough
    const auto launcher = run.start(program());
    std::size_t lost = 0;
    while ((kills < wanted || lost == 0) && launcher->running()) {
      if (lost == 0) {  // what is lost now comes back from memory
        launcher->until([&] { return last_step(run.site().run()) > 5; });
      } else if (random() % 4 != 0) {  // else: anywhere in the start of a generation
        const std::size_t said = count_of(launcher->out(), "step ");
        launcher->until([&] { return count_of(launcher->out(), "step ") > said + 1; });
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
      const auto workers = workers_of(run.site().path());
      const auto victims = static_cast<unsigned>(1 + random() % 15);  // a set of them
      bool killed = false;
      for (const auto& [rank, process] : workers) {
        killed = ((victims >> rank & 1U) != 0 && ::kill(process, SIGKILL) == 0) || killed;
      }
      if (!killed) {
        continue;  // between two generations, or at the end
      }
      ++kills;
      ++lost;
      launcher->until([&] { return count_of(launcher->err(), "rank_lost ") >= lost; });
    }
    const Ended ended = launcher->wait();
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    from_memory += count_of(ended.err, " from memory");
    run.check_after(ended);
    run.check_tidy();
    CHECK(results_of(run.site().run()) == unbroken);
    CHECK(journalled_steps(run.site().run()) == kFourSteps);
    fs::remove_all(run.site().run());
  }
  fmt::print("recovery: seed {}, {}, {} kills, {} starts from memory\n", seed, strategy, kills,
             from_memory);
}

TEST_CASE("recovery: fewer ranks go on from what more of them kept in memory",
          "[integration][.full][recovery][P1][P4][CK-4][CK-10]") {
  const char* const strategy = GENERATE("none", "optimizer", "full");
  INFO(strategy);
  // Saved at the end alone, where rank 1 never gets past its first file.
  const Words shape = {"run.steps=60", "batch.lanes=3", "checkpoint.interval_steps=0"};
  KilledRun run(recovering_keys(
      joined(shape, {"parallel.ranks=3", fmt::format("parallel.strategy={}", strategy),
                     "checkpoint.local_dir=none", "recovery.snapshot_interval_steps=8",
                     "recovery.max_respawns=1"})));
  const Ended ended =
      run.start(faulty_program(), {"ACTORTRAIN_TEST_KILL=before:write:1:1"})->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "respawned generation=1 step=56 ranks=3"));
  CHECK(has(ended.err, "respawned generation=2 step=56 ranks=2"));
  CHECK(has(ended.err, "respawned generation=3 step=56 ranks=2"));
  CHECK(has(ended.err, "respawned generation=4 step=56 ranks=1"));
  CHECK(count_of(ended.err, "resumed step=56 from memory") == 4);
  run.check_after(ended);
  CHECK(results_of(run.site().run()) == results_without_kills(killed_run_keys(60, shape)));
}

TEST_CASE("recovery: a stop after a start from memory saves what no checkpoint has",
          "[integration][recovery][resume][CK-10]") {
  KilledRun run(
      recovering_keys({"checkpoint.local_dir=none", kEndless, "checkpoint.interval_steps=0",
                       "recovery.snapshot_interval_steps=2"}));
  const auto launcher = run.start(program());
  wait_for_output(*launcher, "step 1/");
  // No rank begins the update after a snapshot before that is complete.
  REQUIRE(launcher->until([&] { return last_step(run.site().run()) > 7; }));
  const auto workers = workers_of(run.site().path());
  REQUIRE(workers.contains(0));
  REQUIRE(::kill(workers.at(0), SIGKILL) == 0);
  REQUIRE(launcher->until([&] { return has(launcher->err(), " from memory"); }));
  launcher->send(SIGTERM);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
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

TEST_CASE("recovery: a worker that falls silent is lost, and the run goes on",
          "[integration][.full][recovery][P1][P4]") {
  const Words shape = {kEndless};
  KilledRun run(recovering_keys(joined(shape, {"checkpoint.local_dir=none"})));
  const auto launcher = run.start(program());
  wait_for_output(*launcher, "step 1/");
  const auto workers = workers_of(run.site().path());
  REQUIRE(workers.contains(1));
  REQUIRE(::kill(workers.at(1), SIGSTOP) == 0);
  const auto silent = std::chrono::steady_clock::now();
  REQUIRE(launcher->until([&] { return has(launcher->err(), "rank_lost "); }));
  fmt::print("recovery: a silent worker noticed after {} ms\n", elapsed_ms(silent));
  const std::int64_t before = last_step(run.site().run());
  REQUIRE(launcher->until([&] { return last_step(run.site().run()) > before + 10; }));
  run.check_after(stopped(*launcher));
  UnbrokenRun(killed_run_keys(kKilledSteps, shape)).check_same(run.site().run(), before);
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
  CHECK(results_of(run.site().run()) == unbroken_results());
}

TEST_CASE("recovery: a stop that comes while ranks are started again is heeded",
          "[integration][.full][recovery][resume]") {
  KilledRun run(recovering_keys({"checkpoint.local_dir=none", kEndless}));
  const auto launcher = run.start(program());
  wait_for_output(*launcher, "step 1/");
  const auto workers = workers_of(run.site().path());
  REQUIRE(workers.contains(0));
  REQUIRE(::kill(workers.at(0), SIGKILL) == 0);
  REQUIRE(launcher->until([&] { return has(launcher->err(), "rank_lost "); }));
  launcher->send(SIGTERM);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  run.check_after(ended);
}
