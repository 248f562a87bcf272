// P1 across every kind of stop: the run that was interrupted ends with the bits of the one that was
// not. Real processes, real signals.

#include "tests/integration/sites/endless_run.hpp"
#include "tests/integration/sites/held_runs.hpp"

using namespace train::test;

namespace {

const Words kLongRun = {"run.digest_interval_steps=1", "eval.interval_steps=3",
                        "checkpoint.interval_steps=4", "checkpoint.keep_last=3", kEndless};

// Backward passes of a step: 3 lanes of 2 blocks.
constexpr int kCalls = 6;

/// The run of kLongRun goes on a little, and has the bits of the one that nothing disturbed.
void check_goes_on(const RunSite& site) {
  static UnbrokenRun unbroken(kLongRun);
  const fs::path checkpoints = site.run() / "checkpoints";
  const auto saved =
      fs::exists(checkpoints) ? checkpoint_steps(site.run()) : std::vector<std::int64_t>{};
  const Ended ended = site.start_run(joined(kLongRun, {"run.steps_per_job=5"}))->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  CHECK(has(ended.err, "resumed step=") == !saved.empty());
  unbroken.check_same(site.run(), (saved.empty() ? 0 : saved.back()) + 5);
}

}  // namespace

TEST_CASE("resume: from every step the same bits follow", "[integration][.full][resume][P1]") {
  const RunSite site;
  const Words keys = {"run.digest_interval_steps=1", "run.steps=16"};
  site.train(joined(keys, {"run.name=whole"}));
  for (std::int64_t step = 1; step < 16; ++step) {  // a start for each
    const Ended ended = site.start_run(joined(keys, {"run.steps_per_job=1"}))->wait();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 75);
    CHECK((step == 1 || has(ended.err, fmt::format("resumed step={} ", step - 1))));
    REQUIRE(newest_checkpoint(site.run()) == step);
  }
  site.train(keys);
  CHECK(results_of(site.run()) == results_of(site.run("whole")));
}

TEST_CASE("resume: after any number of kill -9 the same bits follow",
          "[integration][.full][soak][resume][P1][P3]") {
  std::mt19937 random(Catch::rngSeed());
  const RunSite site;
  for (int kill = 0; kill < 5 * soak(); ++kill) {
    INFO(kill << " kills");
    const auto process = site.start_run(kLongRun);
    wait_for_any_event(site.run(), *process, random);
    process->send(SIGKILL);
    const Ended ended = process->wait();
    INFO(ended.err);
    CHECK(ended.signal == SIGKILL);
    CHECK_FALSE(has(ended.err, "set_aside"));  // what has a checkpoint's name is whole
  }
  check_goes_on(site);
  for (const std::string& name : names_in(site.run() / "checkpoints")) {
    CHECK(name.starts_with("step-"));  // what killed writers left is swept
  }
}

TEST_CASE("resume: SIGTERM and SIGINT save, say 75, and the same command goes on",
          "[integration][resume][P1]") {
  const RunSite site;
  std::int64_t done = 0;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    const auto process = start_held(site, "head", 8 * kCalls + 1, kLongRun);
    wait_for_step(site, *process, done + 5);
    const Ended ended = stop_held(site, *process, signal);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 75);
    CHECK(has(ended.err, "run it again"));
    done = last_step(site.run());
    CHECK(newest_checkpoint(site.run()) == done);
  }
  check_goes_on(site);
}

TEST_CASE("resume: SIGTERM at the very start ends the run in good order",
          "[integration][.full][resume][P1]") {
  const RunSite site;
  const auto process = start_held(site, "head", 1, kLongRun);
  REQUIRE(process->until([&] { return fs::exists(site.run() / "run.lock"); }));
  const Ended ended = stop_held(site, *process, SIGTERM);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 75);
  CHECK_FALSE(has(ended.err, "error"));
  check_goes_on(site);
}

TEST_CASE("resume: a second SIGINT leaves at once", "[integration][resume][P3]") {
  const RunSite site;
  // Held for ever: nothing else ends it.
  const auto process = start_held(site, "head", 5 * kCalls + 1, kLongRun);
  wait_for_step(site, *process, 4);
  process->send(SIGINT);
  wait_for_event(site, *process, "stop_requested");
  process->send(SIGINT);
  const Ended ended = process->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 130);
  checkpoint_steps(site.run());
}

TEST_CASE("resume: a run killed before its first file was whole starts", "[integration][resume]") {
  const RunSite site;
  fs::create_directories(site.run());
  write_bytes(site.run() / "run.lock", "12345\n");
  write_bytes(site.run() / ".config.toml.tmp-12345-0", "[run]");
  site.train({"run.steps=2", "schedule.warmup_steps=0"});
  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{2});
  CHECK_FALSE(fs::exists(site.run() / ".config.toml.tmp-12345-0"));
}

TEST_CASE("resume: a run killed before its first checkpoint begins again",
          "[integration][resume]") {
  const RunSite site;
  const auto process = site.start_run({kEndless, "checkpoint.interval_steps=1000000"});
  wait_for_step(site, *process, 2);
  process->send(SIGKILL);
  process->wait();
  REQUIRE(metrics_of(site.run()).size() > 1);
  const Ended ended = site.train({"run.steps=5"});
  CHECK(has(ended.err, "run_begun_anew directory="));
  CHECK(has(ended.err, "it has no checkpoint; steps 1 to "));
  site.train({"run.steps=5", "run.name=whole"});
  CHECK(results_of(site.run()) == results_of(site.run("whole")));
}

TEST_CASE("resume: a run whose checkpoints were all removed is not begun anew in silence",
          "[integration][resume]") {
  const RunSite site;
  site.train();
  const std::string metrics = read_bytes(site.run() / "metrics.jsonl");
  fs::remove_all(site.run() / "checkpoints");
  for (int start = 0; start < 2; ++start) {  // the index has noticed after the first
    const Ended refused = site.call({"run", "tiny.toml"});
    check_one_line(refused, 2, {"no checkpoint any more", "step 20", "--fresh"});
    CHECK(read_bytes(site.run() / "metrics.jsonl") == metrics);
  }
  CHECK(site.call({"run", "tiny.toml", "--fresh"}).exit_code == 0);
  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10, 20});
}

TEST_CASE("resume: torn metrics are healed", "[integration][resume]") {
  const RunSite site;
  site.train();
  const Words whole = results_of(site.run());
  forget_after(site.run(), 10);
  const std::string metrics = read_bytes(site.run() / "metrics.jsonl");
  const std::size_t cut = metrics.find("\"step\":14,");
  REQUIRE(cut != std::string::npos);
  write_bytes(site.run() / "metrics.jsonl", metrics.substr(0, cut + 20));
  site.train();
  CHECK(results_of(site.run()) == whole);
}

TEST_CASE("resume: an evaluation that a stop left out is made up for",
          "[integration][.full][resume]") {
  const RunSite site;
  site.train();
  const Words whole = results_of(site.run());
  std::string kept;
  std::int64_t missing = 0;
  SECTION("in mid-run") {
    missing = 10;
    forget_after(site.run(), 10);
  }
  SECTION("at the end") { missing = 20; }
  for (const std::string& line : lines_of(read_bytes(site.run() / "metrics.jsonl"))) {
    const bool gone = has(line, "val_loss") && has(line, fmt::format("\"step\":{},", missing));
    kept += gone ? "" : line + "\n";
  }
  write_bytes(site.run() / "metrics.jsonl", kept);
  REQUIRE(results_of(site.run()) != whole);
  site.train();
  CHECK(results_of(site.run()) == whole);
}
