// P1 across stops when the next start has another number of ranks and splits something else.

#include <set>

#include "tests/integration/sites/held_runs.hpp"

using namespace train::test;

namespace {

const Words kRun = {"run.steps=400",          "run.digest_interval_steps=1",
                    "eval.interval_steps=40", "checkpoint.interval_steps=25",
                    "checkpoint.keep_last=2", "batch.micro_batch=1"};

// How many pieces the rows of the tensor with most rows lie in.
std::size_t pieces_of_largest(const train::checkpoint::Manifest& manifest) {
  std::map<std::string, std::size_t> pieces;
  std::pair<std::int64_t, std::string> largest;
  for (const auto& tensor : manifest.tensors) {
    ++pieces[tensor.name];
    if (!tensor.shape.empty()) {
      largest = std::max(largest, {tensor.shape.front(), tensor.name});
    }
  }
  return pieces[largest.second];
}

// Goes on from step `from` with the given ranks, is stopped by SIGTERM, and has saved all it did.
std::int64_t train_until_stopped(const RunSite& site, int ranks, const std::string& strategy,
                                 std::int64_t from, std::int64_t steps) {
  INFO(fmt::format("{} ranks, {}, from step {}", ranks, strategy, from));
  const int lanes = (3 + ranks - 1) / ranks;  // at most, of rank 0; each has two blocks
  const auto launcher =
      start_held(site, ranks == 1 ? "head" : "0", 2 * lanes * (static_cast<int>(steps) + 5) + 1,
                 rank_keys(ranks, strategy, kRun));
  wait_for_step(site, *launcher, from + steps);
  const Ended ended = stop_held(site, *launcher, SIGTERM);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 75);
  CHECK(has(ended.err, "resumed step=") == (from > 0));
  CHECK((from == 0 || has(ended.err, fmt::format("resumed step={} ", from))));
  CHECK(workers_of(site.path()).empty());
  const std::int64_t last = last_step(site.run());
  REQUIRE(last < 400);
  CHECK(newest_checkpoint(site.run()) == last);
  const auto manifest = manifest_of(site.run(), last);
  CHECK(train::checkpoint::coverage_defect(manifest.tensors).empty());
  CHECK(manifest.files.size() == static_cast<std::size_t>(ranks));
  CHECK(pieces_of_largest(manifest) == static_cast<std::size_t>(ranks));
  return last;
}

}  // namespace

TEST_CASE("ranks: auto-resume finds the sharded checkpoint of any other number of ranks",
          "[integration][.full][ranks][resume][P1][P3]") {
  const RunSite whole;
  whole.train(kRun);
  const RunSite site;
  std::int64_t step = train_until_stopped(site, 1, "none", 0, 30);
  step = train_until_stopped(site, 3, "full", step, 30);
  step = train_until_stopped(site, 2, "optimizer", step, 30);
  const Ended ended = site.train(kRun);
  CHECK(has(ended.err, fmt::format("resumed step={} ", step)));
  CHECK(results_of(site.run()) == results_of(whole.run()));
}
