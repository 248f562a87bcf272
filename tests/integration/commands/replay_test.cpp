// `actortrain replay`: steps computed again, on any number of ranks, are the run's bitwise; what
// is not is named.

#include "tests/integration/sites/audit_runs.hpp"
#include "tests/integration/sites/held_runs.hpp"

using namespace train::test;

namespace {

const Words kReplayRun = {"run.digest_interval_steps=4"};

Words replay_words(const RunSite& site, const Words& more) {
  return joined({"replay", site.run().string()}, more);
}

}  // namespace

TEST_CASE("replay: any number of ranks computes the run of two again, to the bit",
          "[integration][.full][replay][P1]") {
  const RunSite site;
  site.train(rank_keys(2, GENERATE(std::string("full"), std::string("none")), kReplayRun));
  const std::size_t tensors = tensors_of(site.run(), 20).size();
  CHECK(journal_of(site.run()).steps.at(12).tensor_digests.size() == tensors);
  for (const char* ranks : {"1", "2", "3"}) {
    INFO(ranks << " ranks");
    // Digests of 12, 16 and 20, and the journal's of 20 against the checkpoint.
    check_same(site, replay_words(site, {"--from", "11", "--to", "20", "--ranks", ranks}),
               {fmt::format("same bits: 10 steps and {} tensor digests; replayed steps 11 to 20 "
                            "from step-00000010 on {} rank",
                            4 * tensors, ranks)});
  }
  check_same(site, replay_words(site, {"--to", "7"}), {"steps 1 to 7 from the initial weights"});
  // Without a digest of step 10 in the journal, the checkpoint has it.
  check_same(site, replay_words(site, {"--from", "9", "--to", "10"}),
             {fmt::format("same bits: 10 steps and {} tensor digests", 3 * tensors)});
  check_same(site, replay_words(site, {}), {"steps 11 to 20"});
  fs::remove_all(site.run() / "checkpoints/step-00000010");
  check_same(site, replay_words(site, {"--from", "20"}), {"steps 1 to 20", "initial weights"});
}

TEST_CASE("replay: the first step, layer and tensor that differ are named",
          "[integration][.full][replay]") {
  const RunSite site;
  site.train(rank_keys(2, "full", kReplayRun));
  const Words replay = replay_words(site, {"--from", "11", "--to", "19"});
  const Words tensors = tensors_of(site.run(), 20);
  const auto moment = std::find_if(tensors.begin(), tensors.end(), [](const std::string& name) {
    return has(name, "optimizer.") && has(name, ".h.1.");
  });
  REQUIRE(moment != tensors.end());
  tamper(site.run(), 16, [&](train::checkpoint::StepRecord& step) {
    step.tensor_digests.at(static_cast<std::size_t>(moment - tensors.begin())) += 1;
  });
  check_found(site, replay,
              {"different: step 16: tensor " + *moment + " of layer block 1 after the update",
               "up to step 12"});
  tamper(site.run(), 15,
         [](train::checkpoint::StepRecord& step) { step.unit_grad_norms.at(1) ^= 1; });
  check_found(site, replay,
              {"different: step 15: the gradient of layer block 0", "the loss is the same bits"});
  tamper(site.run(), 14, [](train::checkpoint::StepRecord& step) { step.grad_norm *= 2; });
  check_found(site, replay, {"different: step 14: the gradient norm is"});
  tamper(site.run(), 13, [](train::checkpoint::StepRecord& step) { step.loss *= 2; });
  check_found(site, replay,
              {"different: step 13: the loss is", "all tensors of step 12 are the same bits"});
  check_found(site, replay, {"computed again on this machine, steps 11 to 13 are the same bits"});
  tamper(site.run(), 12, [](train::checkpoint::StepRecord& step) { step.lr *= 2; });
  check_found(site, replay, {"different: step 12: the learning rate", "run.steps"});
  erase(site.run(), train::checkpoint::index_keys::kStep, 18);
  check_one_line(site.call(replay), 1, {"the journal lacks step 18", "actortrain verify"});
}

TEST_CASE("replay: a checkpoint that is not the run's is found", "[integration][.full][replay]") {
  const RunSite site;
  const Words keys = joined(kReplayRun, {"run.digest_interval_steps=5"});
  site.train(keys);
  site.train(joined(keys, {"run.name=other", "run.seed=9"}));
  const fs::path ten = site.run() / "checkpoints/step-00000010";
  const fs::path kept = site / "kept";
  fs::rename(ten, kept);
  SECTION("whole, but of another run") {
    fs::copy(site.run("other") / "checkpoints/step-00000010", ten);
    // To start from, and on the way.
    check_found(site, replay_words(site, {"--from", "11"}),
                {"different: step 10: tensor model.", "between the journal and step-00000010"});
    check_found(site, replay_words(site, {"--from", "1"}),
                {"different: step 10: tensor model.", "between the journal and step-00000010"});
  }
  SECTION("with a weight that changed") {
    fs::copy(kept, ten);
    const std::string tensor = flip_a_weight(site.run(), 10);
    for (const char* from : {"1", "11"}) {
      check_one_line(site.call(replay_words(site, {"--from", from})), 1, {"step-00000010", tensor});
    }
  }
}

TEST_CASE("replay: a run that was killed, resumed and lengthened replays",
          "[integration][.full][replay][P4]") {
  const RunSite site;
  const Words keys = rank_keys(2, "gradient", {"run.steps=48", "run.digest_interval_steps=7"});
  // A rank has two lanes of two blocks in a step, or one lane.
  const auto launcher = start_held(site, "0", 4 * 28 + 1, keys);
  wait_for_step(site, *launcher, 26);
  // What is still on its way to the disk does not outlive the launcher.
  wait_for_event(site, *launcher, "checkpoint_published", 2);
  launcher->send(SIGKILL);
  REQUIRE(launcher->wait().signal == SIGKILL);
  REQUIRE(comes_true([&] { return workers_of(site.path()).empty(); }));
  // To the end, one of its ranks killed on the way; then longer, with another schedule, and on
  // another number of ranks.
  REQUIRE(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10, 20});
  const auto again = start_held(site, "0", 4 * 18 + 1, keys);
  wait_for_step(site, *again, 20 + 16);  // further than before
  REQUIRE(::kill(workers_of(site.path()).at(1), SIGKILL) == 0);
  let_go(site);
  const Ended ended = again->wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "respawned generation=1"));
  site.train(rank_keys(3, "full", {"run.steps=54"}));
  check_same(site, {"verify", site.run().string()}, {"consistent: ", "54 steps"});
  for (const char* ranks : {"1", "2"}) {
    check_same(site, replay_words(site, {"--from", "15", "--to", "40", "--ranks", ranks}),
               {"same bits: 30 steps", "steps 11 to 40 from step-00000010"});
  }
  check_same(site, replay_words(site, {"--from", "49"}), {"same bits: 6 steps"});
}

TEST_CASE("replay: mistakes", "[integration][replay][mistakes]") {
  const RunSite site;
  check_mistake(site, {"replay"}, {"actortrain replay", "--help"});
  check_mistake(site, {"replay", "nowhere"}, {"nowhere", "no such directory"});
  site.train({"run.steps=4", "schedule.warmup_steps=0"});
  check_mistake(site, replay_words(site, {"--from", "3", "--to", "2"}), {"--from 3", "--to 2"});
  check_mistake(site, replay_words(site, {"--to", "5"}), {"--to 5", "steps 1 to 4"});
  check_mistake(site, replay_words(site, {"--from", "5"}), {"--from 5", "last step", "4"});
  check_mistake(site, replay_words(site, {"--ranks", "4"}), {"--ranks 4", "3 lanes"});
  erase(site.run(), train::checkpoint::index_keys::kStep, 1);
  check_mistake(site, replay_words(site, {"--from", "1"}), {"--from 1", "steps 2 to 4"});
  for (const std::int64_t step : {2, 3, 4}) {
    erase(site.run(), train::checkpoint::index_keys::kStep, step);
  }
  check_mistake(site, replay_words(site, {}), {"no steps in the journal"});
  fs::remove_all(site.run() / "index");
  check_mistake(site, replay_words(site, {}), {"index"});
}

TEST_CASE("replay: bits of one number of ranks are computed on that number",
          "[integration][.full][replay]") {
  const RunSite site;
  site.train(rank_keys(2, "full", joined(kReplayRun, {"precision.reduce=bf16", "run.steps=8"})));
  check_same(site, replay_words(site, {"--from", "1"}), {"same bits: 8 steps", "on 2 ranks"});
  check_mistake(site, replay_words(site, {"--ranks", "1"}),
                {"--ranks 1", "precision.reduce = \"bf16\"", "on 2 ranks alone"});
}
