// P1 over processes: however many ranks, whatever they split and whenever they send gradients, the
// run's numbers are those of one rank. The whole matrix runs in one process (world_bits_test.cpp);
// here a part of it runs as a user runs it.

#include "tests/integration/sites/rank_runs.hpp"

using namespace train::test;

namespace {

// 5 lanes: no number of ranks here divides them.
const Words kShortRanks = {"run.steps=6",
                           "run.digest_interval_steps=1",
                           "batch.lanes=5",
                           "batch.micro_batch=1",
                           "eval.interval_steps=3",
                           "eval.lanes=4",
                           "schedule.warmup_steps=2",
                           "checkpoint.interval_steps=3"};

struct Case {
  int ranks;
  const char* strategy;
  const char* sync;
};
using Cases = std::vector<Case>;

std::string name_of(const Case& one) {
  return fmt::format("{}-{}-{}", one.ranks, one.strategy, one.sync);
}

void check_bits_of_one_rank(const Cases& cases) {
  const RunSite site;
  site.train(joined(kShortRanks, {"run.name=one"}));
  const Words one = results_of(site.run("one"));
  REQUIRE(one.size() == 6 + 3);
  for (const Case& each : cases) {
    const std::string name = name_of(each);
    INFO(name);
    const Ended ended = site.train(rank_keys(
        each.ranks, each.strategy,
        joined(kShortRanks, {"run.name=" + name, fmt::format("parallel.sync={}", each.sync)})));
    CHECK(has(ended.err, fmt::format("ranks={} strategy={}", each.ranks, each.strategy)));
    CHECK_FALSE(has(ended.err, "warning"));
    CHECK(results_of(site.run(name)) == one);
    for (const std::int64_t step : {3, 6}) {
      const auto manifest = manifest_of(site.run(name), step);
      CHECK(manifest.files.size() == static_cast<std::size_t>(each.ranks));
      CHECK(manifest.fields.weights_digest ==
            manifest_of(site.run("one"), step).fields.weights_digest);
    }
  }
  CHECK(workers_of(site.path()).empty());
}

}  // namespace

TEST_CASE("ranks: two processes compute the bits of one rank", "[integration][ranks][P1]") {
  check_bits_of_one_rank({{2, "none", "last_lane"}, {2, "full", "every_lane"}});
}

TEST_CASE("ranks: three processes and four compute the bits of one rank",
          "[integration][.full][ranks][P1]") {
  check_bits_of_one_rank({{3, "gradient", "every_lane"},
                          {3, "none", "every_lane"},
                          {3, "full", "last_lane"},
                          {4, "hybrid", "every_lane"},
                          {4, "hybrid", "last_lane"},
                          {4, "gradient", "last_lane"}});
}

TEST_CASE("ranks: a radix of the sum over lanes has its own bits at any number of ranks",
          "[integration][.full][ranks][P1]") {
  const RunSite site;
  const Words keys = joined(kShortRanks, {"batch.lanes=12"});
  site.train(joined(keys, {"run.name=binary"}));
  const Words with_radix = joined(keys, {"batch.radix=[3,2]"});
  site.train(joined(with_radix, {"run.name=one"}));
  const Words one = results_of(site.run("one"));
  REQUIRE(one.size() == 6 + 3);
  CHECK(results_of(site.run("binary")) != one);
  const Cases cases = {
      {2, "none", "last_lane"}, {3, "full", "3"}, {4, "hybrid", "3"}, {4, "full", "every_lane"}};
  for (const Case& each : cases) {
    const std::string name = name_of(each);
    INFO(name);
    site.train(rank_keys(
        each.ranks, each.strategy,
        joined(with_radix, {"run.name=" + name, fmt::format("parallel.sync={}", each.sync)})));
    CHECK(results_of(site.run(name)) == one);
  }
  // Runs of 4 lanes begin inside nodes of 3.
  check_one_line(
      site.call(RunSite::run_words(rank_keys(3, "none", joined(with_radix, {"run.name=refused"})))),
      2,
      {"--set batch.radix=[3,2]: batch.radix begins with 3", "rank 1 of 3",
       "set parallel.sync to \"every_lane\""});
}

TEST_CASE("ranks: a run goes on with its radix at another number of ranks, or is told of another",
          "[integration][.full][ranks][resume][P1]") {
  const RunSite site;
  const Words keys = joined(kShortRanks, {"batch.lanes=12", "batch.radix=[3,2]"});
  site.train(joined(keys, {"run.name=one"}));
  const Words part = joined(keys, {"run.steps_per_job=3"});
  REQUIRE(site.call(RunSite::run_words(rank_keys(2, "none", part))).exit_code == 75);
  const auto with_radix = [&](const char* radix) {
    return RunSite::run_words(
        rank_keys(4, "full", joined(keys, {fmt::format("batch.radix={}", radix)})));
  };
  check_one_line(site.call(with_radix("[2]")), 2,
                 {"batch.radix was [3, 2] so far and is [2] now", "--accept-config batch.radix"});
  REQUIRE(site.call(with_radix("[3,2]")).exit_code == 0);
  const Words whole = results_of(site.run("one"));
  const Words both = results_of(site.run("tiny"));
  CHECK(both == whole);
}

TEST_CASE("ranks: threads in one process compute the bits of processes",
          "[integration][.full][ranks][P1]") {
  const RunSite site;
  site.train(rank_keys(3, "full", joined(kShortRanks, {"run.name=processes"})));
  const Ended ended = site.train(
      rank_keys(3, "full", joined(kShortRanks, {"run.name=threads", "parallel.transport=inproc"})));
  CHECK_FALSE(has(ended.err, "warning"));
  CHECK(results_of(site.run("threads")) == results_of(site.run("processes")));
}

TEST_CASE("ranks: more ranks than an evaluation has lanes", "[integration][.full][ranks][P1]") {
  const RunSite site;
  const Words keys = joined(kShortRanks, {"eval.lanes=1"});
  site.train(joined(keys, {"run.name=one"}));
  site.train(rank_keys(3, "full", joined(keys, {"run.name=three"})));
  CHECK(results_of(site.run("three")) == results_of(site.run("one")));
}

TEST_CASE("ranks: frozen weights stay as they are, the others learn",
          "[integration][.full][ranks][P1]") {
  const RunSite site;
  const Words keys =
      joined(kShortRanks, {"train.freeze=[\"block 0\"]", "checkpoint.interval_steps=1"});
  site.train(joined(keys, {"run.name=one"}));
  site.train(rank_keys(3, "full", joined(keys, {"run.name=three"})));
  CHECK(results_of(site.run("three")) == results_of(site.run("one")));
  const auto first = manifest_of(site.run("three"), 1);
  const auto last = manifest_of(site.run("three"), 6);
  REQUIRE(first.tensors.size() == last.tensors.size());
  int frozen = 0;
  int learned = 0;
  for (std::size_t i = 0; i < first.tensors.size(); ++i) {
    const auto& before = first.tensors[i];
    const auto& after = last.tensors[i];
    REQUIRE(before.name == after.name);
    REQUIRE(before.first_row == after.first_row);
    if (!before.name.starts_with("model.")) {
      continue;
    }
    INFO(before.name << " from row " << before.first_row);
    const bool in_block = has(before.name, ".h.0.");
    const bool same = before.digest == after.digest;
    CHECK((same || !in_block));
    frozen += in_block ? 1 : 0;
    learned += same ? 0 : 1;
  }
  CHECK(frozen > 0);
  CHECK(learned > frozen);
}
