// A rank that is lost ends a generation of ranks, not the job: the run goes on by itself, to the
// same bits. Real processes, real signals.

#include <random>

#include "tests/integration/killed_runs.hpp"

using namespace train::test;

namespace {

constexpr std::int64_t kSteps = 800;

Words recovering_keys(const Words& more = {}) {
  return killed_run_keys(kSteps, joined({"recovery.rank_loss=respawn"}, more));
}

const Words& unbroken_results() {
  static const Words results = [] {
    const RunSite site;
    site.train(killed_run_keys(kSteps));
    return results_of(site.run());
  }();
  return results;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE(
    "recovery: a job outlives kill -9 of its workers at any time, and ends with the same bits",
    "[integration][recovery][P1][P3][P4]") {
  const char* const place = GENERATE("none", "fast");
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  const int wanted = 8 * soak();
  KilledRun run(recovering_keys(
      {fmt::format("checkpoint.local_dir={}", place), "recovery.max_respawns=1000"}));
  const auto launcher = run.start(program());
  std::size_t kills = 0;
  std::int64_t slowest_ms = 0;
  while (kills < static_cast<std::size_t>(wanted) && launcher->running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 300));
    const auto workers = workers_of(run.site().path());
    const auto victim = workers.find(static_cast<int>(random() % 2));
    if (victim == workers.end() || ::kill(victim->second, SIGKILL) != 0) {
      continue;  // between two generations, or at the end
    }
    const auto killed = std::chrono::steady_clock::now();
    ++kills;
    if (launcher->until([&] { return count_of(launcher->err(), "rank_lost ") >= kills; })) {
      slowest_ms = std::max(slowest_ms, elapsed_ms(killed));
    }
  }
  const Ended ended = launcher->wait();
  INFO(ended.err);
  fmt::print("recovery: seed {}, {} kills, local place {}, noticed within {} ms\n", seed, kills,
             place, slowest_ms);
  CHECK(ended.exit_code == 0);
  CHECK(kills > 2);
  // The last one may have hit a worker that had done its work.
  CHECK(count_of(ended.err, "respawned generation=") + 1 >= kills);
  CHECK(has(ended.err, "SIGKILL"));
  run.check_after(ended);
  run.check_tidy();
  CHECK(results_of(run.site().run()) == unbroken_results());
}

TEST_CASE("recovery: a worker that falls silent is lost, and the run goes on",
          "[integration][recovery][P1][P4]") {
  KilledRun run(recovering_keys({"checkpoint.local_dir=none"}));
  const auto launcher = run.start(program());
  wait_for_output(*launcher, "step 1/");
  const auto workers = workers_of(run.site().path());
  REQUIRE(workers.contains(1));
  REQUIRE(::kill(workers.at(1), SIGSTOP) == 0);
  const auto stopped = std::chrono::steady_clock::now();
  REQUIRE(launcher->until([&] { return has(launcher->err(), "rank_lost "); }));
  fmt::print("recovery: a silent worker noticed after {} ms\n", elapsed_ms(stopped));
  const Ended ended = launcher->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  run.check_after(ended);
  CHECK(results_of(run.site().run()) == unbroken_results());
}

TEST_CASE("recovery: where a rank is lost again and again the run goes on with fewer",
          "[integration][recovery][P1][P4]") {
  KilledRun run(recovering_keys({"checkpoint.local_dir=none", "recovery.max_respawns=1"}));
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
          "[integration][recovery][resume]") {
  KilledRun run(recovering_keys({"checkpoint.local_dir=none", "run.steps=100000"}));
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
