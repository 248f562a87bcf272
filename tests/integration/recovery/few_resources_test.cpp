// A program that gets less memory, stack or descriptors than it needs: its end is a line that names
// the limit, and an exit code.

#include <string>

#include "tests/integration/sites/killed_runs.hpp"
#include "tests/integration/sites/run_site.hpp"

using namespace train::test;

namespace {

const Words kFewSteps = {"run.steps=3", "schedule.warmup_steps=1", "run.name=few",
                         "checkpoint.interval_steps=2", "runtime.threads=4"};

/// A run of a few steps in which calls for memory or threads fail, as scarce_memory_preload.cpp
/// says; a run that waits for ever fails the test.
Ended scarce_run(const RunSite& site, const std::string& scarce, const Words& variables = {}) {
  Words words = {"/usr/bin/env",
                 "LD_PRELOAD=" ACTORTRAIN_BINARY_DIR "/tests/libscarce_memory_preload.so",
                 "ACTORTRAIN_TEST_SCARCE=" + scarce};
  const Words run = joined({program()}, RunSite::run_words(kFewSteps));
  words = joined(joined(words, variables), joined(run, {"--fresh"}));
  return Process(std::move(words), site.path()).wait();
}

/// Number of calls of a kind in a whole run.
std::uint64_t calls_of(const RunSite& site, const std::string& kind, const Words& variables = {}) {
  const fs::path count = site / "calls";
  const Ended ended = scarce_run(
      site, kind + " 0 0 0", joined(variables, {"ACTORTRAIN_TEST_SCARCE_CALLS=" + count.string()}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return std::stoull(read_bytes(count));
}

/// A run of a few steps under a limit of the shell.
Ended limited_run(const RunSite& site, const std::string& limit) {
  Words words = {"/bin/sh", "-c", "ulimit " + limit + " && exec \"$@\"", "sh", program()};
  const Words run = RunSite::run_words({"run.steps=3", "schedule.warmup_steps=1", "run.name=few"});
  words.insert(words.end(), run.begin(), run.end());
  words.emplace_back("--fresh");
  return Process(std::move(words), site.path()).wait();
}

/// The last line of the log.
std::string last_line(const Ended& ended) {
  const Words lines = lines_of(ended.err);
  return lines.empty() ? "" : lines.back();
}

/// A run that lacked something has finished, or names it and has an exit code, unless a library has
/// ended it by a line of its own.
void check_end(const Ended& ended) {
  if (ended.signal == SIGABRT) {
    CHECK((has(ended.err, "Fatal glibc error") || has(ended.err, "Assertion `")));
    return;
  }
  REQUIRE((ended.exit_code == 0 || ended.exit_code == 1));
  CHECK(!has(ended.err, "terminate called"));
  if (ended.exit_code == 1) {
    CHECK(last_line(ended).starts_with("error "));
    CHECK((has(last_line(ended), "memory") || has(last_line(ended), "cannot start a thread")));
  }
}

}  // namespace

TEST_CASE("few resources: a lack of memory at the start is one line and an exit code",
          "[integration][few_resources]") {
  const RunSite site;
  int ended_early = 0;
  for (const int kilobytes : {130'000, 200'000}) {
    const Ended ended = limited_run(site, fmt::format("-v {}", kilobytes));
    INFO(kilobytes << " KiB: " << ended.err);
    REQUIRE((ended.exit_code == 0 || ended.exit_code == 1));
    CHECK(!has(ended.err, "terminate called"));
    if (ended.exit_code == 1) {
      ++ended_early;
      CHECK(last_line(ended).starts_with("error "));
      CHECK(has(last_line(ended), "`ulimit -v` allows "));
    }
  }
  CHECK(ended_early > 0);
}

TEST_CASE("few resources: a small stack is raised, or named with what is needed",
          "[integration][few_resources]") {
  const RunSite site;
  CHECK(limited_run(site, "-S -s 100").exit_code == 0);
  const Ended ended = limited_run(site, "-s 100");
  CHECK(ended.exit_code == 1);
  CHECK(last_line(ended) ==
        "error the stack may have 100 KiB, and 256 KiB are needed; raise `ulimit -s`");
  // So little that the initializers of libraries would end the process.
  CHECK(limited_run(site, "-S -s 32").exit_code == 0);
  const Ended least = limited_run(site, "-s 32");
  CHECK(least.exit_code == 1);
  CHECK(least.err ==
        "error the stack may have 32 KiB, and 256 KiB are needed; raise `ulimit -s`\n");
}

TEST_CASE("few resources: too few descriptors are named with the limit to raise",
          "[integration][few_resources]") {
  const RunSite site;
  const Ended ended = limited_run(site, "-n 8");
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(has(last_line(ended), "raise `ulimit -n`"));
}

TEST_CASE("few resources: whichever thread cannot be started, a run ends with its line",
          "[integration][few_resources][P2]") {
  const RunSite site;
  const std::uint64_t starts = calls_of(site, "threads");
  int ended_early = 0;
  for (std::uint64_t first = 1; first <= starts; ++first) {
    const Ended ended = scarce_run(site, fmt::format("threads {} 0 0", first));
    INFO("from thread " << first << " of " << starts << " on: " << ended.err);
    check_end(ended);
    ended_early += ended.exit_code;
  }
  CHECK(ended_early > static_cast<int>(starts) / 2);
}

TEST_CASE("few resources: memory that runs out before main() is a line and an exit code",
          "[integration][few_resources]") {
  const RunSite site;
  for (const int first : {1, 40, 300, 1200, 2000}) {
    const Ended ended = scarce_run(site, fmt::format("memory {} 1 0", first));
    INFO("call " << first << ": " << ended.err);
    CHECK(ended.signal == 0);
    CHECK(ended.exit_code == 1);
    CHECK(last_line(ended).starts_with("error "));
    CHECK(has(last_line(ended), "memory"));
  }
}

// There the program has what is compiled for devices, and the initializers of its runtime.
TEST_CASE("few resources: whichever call of the first initializers fails, a run ends with a line",
          "[.full][integration][few_resources]") {
  const RunSite site;
  int ended_early = 0;
  for (int first = 1; first <= 40; ++first) {
    const Ended ended = scarce_run(site, fmt::format("memory {} 1 0", first));
    INFO("call " << first << ": " << ended.err);
    CHECK(ended.signal == 0);
    check_end(ended);
    ended_early += ended.exit_code;
  }
  CHECK(ended_early > 20);
}

TEST_CASE("few resources: wherever memory runs out in a run, it ends with its line",
          "[integration][few_resources][soak][P2][P3]") {
  const RunSite site;
  const Words started = {"ACTORTRAIN_TEST_SCARCE_AFTER=run_started"};
  const std::uint64_t calls = calls_of(site, "memory", started);
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int point = 0; point < 6 * soak(); ++point) {
    const std::uint64_t first = 1 + random() % calls;
    const int failed = point % 2 == 0 ? 1 : 100;
    const Ended ended = scarce_run(site, fmt::format("memory {} {} 0", first, failed), started);
    INFO(failed << " from call " << first << " of " << calls << " on: " << ended.err);
    check_end(ended);
  }
  // While actors talk, most calls are theirs and the framework's.
  const Words stepping = {"ACTORTRAIN_TEST_SCARCE_AFTER=step 1/3"};
  for (int point = 0; point < 12 * soak(); ++point) {
    const std::uint64_t first = 1 + random() % 600;
    const Ended ended = scarce_run(site, fmt::format("memory {} 1 0", first), stepping);
    INFO("call " << first << " of the second step on: " << ended.err);
    check_end(ended);
  }
  // Whatever the last of them has left, the same command goes on with it.
  const Ended resumed = site.start_run(kFewSteps)->wait();
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
}
