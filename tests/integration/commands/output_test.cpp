// Whoever reads what a run prints, or does not read it, changes nothing of the run.

#include "tests/integration/sites/endless_run.hpp"

using namespace train::test;

namespace {

const Words kTalks = {kEndless, "checkpoint.interval_steps=1000000"};

/// A run whose output goes to a pipe that nobody reads: it is full after 64 KiB.
std::unique_ptr<Process> start_unread(const RunSite& site, int ranks, const std::string& streams) {
  Words words = {"/bin/sh", "-c", "mkfifo unread; exec \"$@\" " + streams, "sh", program()};
  const Words run = RunSite::run_words(joined(rank_keys(ranks, "full"), kTalks));
  words.insert(words.end(), run.begin(), run.end());
  words.emplace_back("--json");
  return std::make_unique<Process>(std::move(words), site.path());
}

std::uintmax_t metrics_bytes(const RunSite& site) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(site.run() / "metrics.jsonl", error);
  return error ? 0 : bytes;
}

}  // namespace

TEST_CASE("output: a reader that does not read stops neither the run nor its end",
          "[integration][output][P2]") {
  const RunSite site;
  const auto [ranks, streams] =
      GENERATE(std::pair(1, "1<>unread"), std::pair(2, "<>unread >&0 2>&0"));
  CAPTURE(ranks, streams);
  const auto process = start_unread(site, ranks, streams);
  // What it prints has to wait or to be dropped long before.
  REQUIRE(process->until([&] { return metrics_bytes(site) > 300'000; }));
  process->send(SIGTERM);
  const Ended ended = process->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  CHECK(newest_checkpoint(site.run()) == last_step(site.run()));
}

TEST_CASE("output: a reader that has gone stops nothing", "[integration][output]") {
  const RunSite site;
  Words words = {"/bin/bash", "-c", "\"$@\" 2>&1 | true; exit ${PIPESTATUS[0]}", "bash", program()};
  const Words run = RunSite::run_words({"run.steps=30"});
  words.insert(words.end(), run.begin(), run.end());
  const Ended ended = Process(std::move(words), site.path()).wait();
  CHECK(ended.exit_code == 0);
  CHECK(last_step(site.run()) == 30);
}
