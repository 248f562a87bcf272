// Runs that end when their evaluations improve no more.

#include "tests/integration/sites/rank_runs.hpp"

using namespace train::test;

namespace {

// Nothing is learned at such a rate: the accuracy of all evaluations is that of the first.
const Words kIdle = {"optimizer.lr=1e-12",
                     "eval.interval_steps=3",
                     "run.steps=30",
                     "checkpoint.interval_steps=3",
                     "run.sample_tokens=0",
                     "run.digest_interval_steps=1",
                     "train.stop_after={metric=\"val_accuracy\", patience=3}"};

}  // namespace

TEST_CASE("early stop: a run ends where its evaluations stop improving, at any ranks",
          "[integration][early_stop][P1]") {
  const RunSite site;
  const Ended ended = site.train(kIdle);
  INFO(ended.err);
  CHECK(has(ended.err, "finished at step 9: val_accuracy is not above"));
  CHECK(newest_checkpoint(site.run()) == 9);
  const Ended again = site.train(kIdle);  // There is nothing left to do.
  CHECK(newest_checkpoint(site.run()) == 9);
  CHECK(site.call({"verify", "runs/tiny"}).exit_code == 0);

  const RunSite ranks;
  ranks.train(joined(kIdle, {"parallel.ranks=2"}));
  CHECK(results_of(ranks.run()) == results_of(site.run()));

  // A start that ends before the decision leaves it to the next.
  const RunSite parts;
  Words part = joined(kIdle, {"run.steps_per_job=4"});
  CHECK(parts.call(RunSite::run_words(part)).exit_code == 75);
  CHECK(parts.call(RunSite::run_words(part)).exit_code == 75);
  CHECK(parts.call(RunSite::run_words(part)).exit_code == 0);
  CHECK(newest_checkpoint(parts.run()) == 9);
  CHECK(results_of(parts.run()) == results_of(site.run()));

  // More patience goes on.
  site.train(joined(kIdle, {"train.stop_after.patience=5"}));
  CHECK(newest_checkpoint(site.run()) == 15);
}

TEST_CASE("early stop: three ranks that resume on other numbers of ranks end at the same step",
          "[integration][early_stop][P1]") {
  // Losses fall by leaps: which evaluation is the last one depends on their values.
  const Words keys = {"optimizer.lr=0.4",
                      "schedule.name=constant",
                      "schedule.warmup_steps=1",
                      "eval.interval_steps=2",
                      "run.steps=200",
                      "checkpoint.interval_steps=2",
                      "run.digest_interval_steps=1",
                      "train.stop_after={metric=\"val_loss\", patience=2}"};
  const RunSite one;
  const Ended ended = one.train(keys);
  CHECK(has(ended.err, "val_loss is not below"));
  const std::int64_t last = newest_checkpoint(one.run());
  INFO("ended at step " << last);
  CHECK(last > 4);
  CHECK(last < 200);

  const RunSite three;
  CHECK(has(three.train(rank_keys(3, "full", keys)).err, "val_loss is not below"));
  CHECK(newest_checkpoint(three.run()) == last);
  CHECK(results_of(three.run()) == results_of(one.run()));

  // Each start but the last ends before the decision, which counts evaluations of all of them.
  const RunSite parts;
  int ranks = 3;
  Ended start;
  do {
    start = parts.call(
        RunSite::run_words(rank_keys(ranks, "full", joined(keys, {"run.steps_per_job=3"}))));
    ranks = ranks == 3 ? 1 : ranks + 1;
    REQUIRE((start.exit_code == 75 || start.exit_code == 0));
  } while (start.exit_code == 75);
  CHECK(newest_checkpoint(parts.run()) == last);
  CHECK(results_of(parts.run()) == results_of(one.run()));
  CHECK(manifest_of(parts.run(), last).fields.weights_digest ==
        manifest_of(one.run(), last).fields.weights_digest);
}
