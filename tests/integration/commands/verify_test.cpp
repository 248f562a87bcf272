// `actortrain verify`: journal, index, checkpoints and metrics say the same, or each thing that
// does not is named.

#include "tests/integration/sites/audit_runs.hpp"
#include "tests/integration/sites/held_runs.hpp"

using namespace train::test;

namespace {

Words verify_words(const RunSite& site) { return {"verify", site.run().string()}; }

}  // namespace

TEST_CASE("verify: a run that is whole, also after a signal and while it is on",
          "[integration][.full][verify]") {
  const RunSite site;
  const Words keys = {"run.steps=1000000", "checkpoint.interval_steps=20", "checkpoint.keep_last=2",
                      "eval.interval_steps=20"};
  const auto run = site.start_run(rank_keys(2, "full", keys));
  wait_for_step(site, *run, 60);
  for (int i = 0; i < 3; ++i) {  // what it retires meanwhile is no problem
    // The index says within two seconds that a checkpoint is gone, or later on a busy machine.
    Ended meanwhile;
    run->until([&] {
      meanwhile = site.call(verify_words(site));
      return !has(meanwhile.out + meanwhile.err, "committed in the index, but not in place");
    });
    INFO(meanwhile.out << meanwhile.err);
    CHECK(meanwhile.exit_code == 0);
  }
  run->send(SIGTERM);
  REQUIRE(run->wait().exit_code == 75);
  check_same(site, verify_words(site), {"consistent: ", " checkpoints", "metrics of "});
  const auto steps = journal_of(site.run()).steps.size();
  site.train(joined(keys, {fmt::format("run.steps={}", steps + 5)}));
  check_same(site, verify_words(site), {fmt::format("{} steps", steps + 5)});
}

TEST_CASE("verify: every thing that does not fit is named", "[integration][.full][verify]") {
  const RunSite site;
  site.train();
  const fs::path run = site.run();
  check_same(site, verify_words(site),
             {"consistent: 2 checkpoints, 2 of them with digests in the journal; 20 steps, 4 with "
              "digests; metrics of 20 steps"});
  SECTION("a weight that changed") {
    const std::string tensor = flip_a_weight(run, 10);
    check_found(site, verify_words(site), {"problem: step-00000010: damaged", tensor});
  }
  SECTION("a checkpoint that is gone") {
    fs::remove_all(run / "checkpoints/step-00000010");
    check_found(site, verify_words(site), {"step-00000010: committed in the index, but not in"});
  }
  SECTION("a checkpoint that the index does not know") {
    site.train({"run.name=other", "checkpoint.interval_steps=15"});
    fs::copy(site.run("other") / "checkpoints/step-00000015", run / "checkpoints/step-00000015");
    check_found(site, verify_words(site), {"step-00000015: in place, but not committed"});
  }
  SECTION("a checkpoint of another run") {
    site.train({"run.name=other", "run.seed=8"});
    fs::remove_all(run / "checkpoints/step-00000010");
    fs::copy(site.run("other") / "checkpoints/step-00000010", run / "checkpoints/step-00000010");
    check_found(site, verify_words(site), {"step-00000010: its manifest is", "in the index"});
    check_found(site, verify_words(site), {"step-00000010: tensor model.", "is not the one"});
  }
  SECTION("steps that are missing in the journal") {
    for (const std::int64_t step : {7, 8}) {
      erase(run, train::checkpoint::index_keys::kStep, step);
    }
    check_found(site, verify_words(site), {"problem: journal: steps 7 to 8 are missing"});
    check_found(site, verify_words(site), {"step 7 is not in the journal"});
  }
  SECTION("a journal that ends before the newest checkpoint") {
    erase(run, train::checkpoint::index_keys::kStep, 20);
    check_found(site, verify_words(site), {"step-00000020: the journal ends at step 19"});
  }
  SECTION("a step of the journal that is another one") {
    tamper(run, 12, [](train::checkpoint::StepRecord& step) { step.loss *= 2; });
    check_found(site, verify_words(site), {"metrics.jsonl:", "loss of step 12"});
  }
  SECTION("a digest of the journal that is another one") {
    tamper(run, 20, [](train::checkpoint::StepRecord& step) { step.tensor_digests.at(3) ^= 1; });
    check_found(site, verify_words(site),
                {"step-00000020: tensor " + tensors_of(run, 20).at(3), "is not the one"});
  }
  SECTION("a chain of the index that is broken") {
    erase(run, train::checkpoint::index_keys::kJournal, 1);
    check_found(site, verify_words(site), {"problem: index", "journal entry 1"});
  }
  SECTION("a line of metrics that is torn") {
    const std::string metrics = read_bytes(run / "metrics.jsonl");
    write_bytes(run / "metrics.jsonl", metrics.substr(0, metrics.size() - 10));
    check_found(site, verify_words(site), {"metrics.jsonl:23: not a JSON object"});
  }
}

TEST_CASE("verify: mistakes", "[integration][verify][mistakes]") {
  const RunSite site;
  check_mistake(site, {"verify"}, {"actortrain verify", "--help"});
  check_mistake(site, {"verify", "nowhere"}, {"nowhere", "no such directory"});
}
