// A program that gets less memory, stack or descriptors than it needs: its end is a line that names
// the limit, and an exit code.

#include "tests/integration/run_site.hpp"

using namespace train::test;

namespace {

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
}

TEST_CASE("few resources: too few descriptors are named with the limit to raise",
          "[integration][few_resources]") {
  const RunSite site;
  const Ended ended = limited_run(site, "-n 8");
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(has(last_line(ended), "raise `ulimit -n`"));
}
