// Runs of models with experts, in processes: what was chosen in the step before is part of what a
// run resumes from.
#include <catch2/catch.hpp>
#include <string>

#include "tests/integration/sites/row_runs.hpp"

namespace train::test {
namespace {

/// A small model of experts; steps and checkpoints of a short run.
const Words kSmall = {"model.experts=6",
                      "model.experts_per_token=2",
                      "model.expert_hidden=24",
                      "run.steps=8",
                      "run.sample_tokens=0",
                      "run.digest_interval_steps=2",
                      "checkpoint.interval_steps=4",
                      "eval.interval_steps=4"};
const Words kPrevious = {R"(model.balance=["switch:previous_step:0.05", "z:0.001"])"};

/// The results of one rank, and of two that split everything.
void check_split_ranks(const RunSite& site, const Words& keys, const Words& of_two = {}) {
  site.train(joined(keys, {"run.name=one"}));
  site.train(rank_keys(2, "full", joined(joined(keys, of_two), {"run.name=two"})));
  const Words one = results_of(site.run("one"));
  CHECK(count_of(fmt::format("{}", fmt::join(one, "\n")), "\"grad_norm\":") == 8);
  CHECK(results_of(site.run("two")) == one);
}

const Words kExperts = {"run.steps=24",
                        "run.log_interval_steps=1",
                        "checkpoint.interval_steps=8",
                        "model.experts=6",
                        "model.experts_per_token=2",
                        "model.expert_hidden=24",
                        R"(model.balance=["switch:previous_step:0.05", "z:0.001"])"};

const Words kBiased = {"run.steps=24",
                       "run.log_interval_steps=1",
                       "checkpoint.interval_steps=8",
                       "model.experts=6",
                       "model.experts_per_token=2",
                       "model.expert_hidden=24",
                       "model.router=sigmoid_normalised",
                       "model.router_scale=1.5",
                       "model.router_groups=3",
                       "model.router_kept_groups=2",
                       "model.router_bias_rate=0.01"};

}  // namespace

TEST_CASE("experts: a bias of a sigmoid router is the same at any number of ranks, and resumed",
          "[integration][experts][P1]") {
  const RunSite site;
  site.train(joined(kBiased, {"run.name=alone"}));
  const Words alone = results_of(site.run("alone"));
  Words still = kBiased;
  still.back() = "model.router_bias_rate=0";
  site.train(joined(still, {"run.name=still"}));
  CHECK(results_of(site.run("still")) != alone);
  const char* const strategy = GENERATE("none", "optimizer", "gradient", "full");
  INFO(strategy);
  for (const char* const ranks : {"2", "3"}) {
    const std::string name = std::string("ranks") + ranks;
    site.train(joined(kBiased, {"run.name=" + name, std::string("parallel.ranks=") + ranks,
                                std::string("parallel.strategy=") + strategy,
                                "memory.activation_checkpointing=all"}));
    CHECK(results_of(site.run(name)) == alone);
  }
  const Words parts = joined(kBiased, {"run.name=parts", "run.steps_per_job=9",
                                       std::string("parallel.strategy=") + strategy});
  CHECK(site.start_run(joined(parts, {"parallel.ranks=2"}))->wait().exit_code == 75);
  CHECK(site.start_run(parts)->wait().exit_code == 75);
  site.train(joined(parts, {"parallel.ranks=3"}));
  CHECK(results_of(site.run("parts")) == alone);
}

TEST_CASE(
    "experts: ranks, strategies and what is computed again do not show, nor do parts of a run",
    "[integration][experts][P1]") {
  const RunSite site;
  site.train(joined(kExperts, {"run.name=alone"}));
  const Words alone = results_of(site.run("alone"));
  const std::string metrics = read_bytes(site.run("alone") / "metrics.jsonl");
  INFO(metrics);
  CHECK(count_of(metrics, "\"expert_load\":[[") == 24);
  CHECK(count_of(metrics, "\"balance/switch_previous_step\":") == 24);
  site.train(joined(kExperts, {"run.name=sharded", "parallel.ranks=3", "parallel.strategy=full",
                               "memory.activation_checkpointing=all"}));
  CHECK(results_of(site.run("sharded")) == alone);
  const Words parts = joined(kExperts, {"run.name=parts", "run.steps_per_job=9"});
  CHECK(site.start_run(joined(parts, {"parallel.ranks=2"}))->wait().exit_code == 75);
  CHECK(site.start_run(parts)->wait().exit_code == 75);
  site.train(joined(parts, {"parallel.ranks=3", "parallel.strategy=full"}));
  CHECK(results_of(site.run("parts")) == alone);
}

TEST_CASE(
    "experts: loads of the whole step are the same whatever the ranks, the strategy and what is "
    "computed again, and in parts of a run",
    "[integration][experts][P1]") {
  const RunSite site;
  Words keys = kExperts;
  keys.back() = R"(model.balance=["switch:step:0.05", "z:0.001"])";
  site.train(joined(keys, {"run.name=alone"}));
  const Words alone = results_of(site.run("alone"));
  const std::string metrics = read_bytes(site.run("alone") / "metrics.jsonl");
  INFO(metrics);
  CHECK(count_of(metrics, "\"balance/switch_step\":") == 24);
  const char* const strategy = GENERATE("none", "full");
  INFO(strategy);
  for (const char* const ranks : {"2", "3"}) {
    const std::string name = std::string("ranks") + ranks;
    site.train(joined(keys, {"run.name=" + name, std::string("parallel.ranks=") + ranks,
                             std::string("parallel.strategy=") + strategy,
                             "memory.activation_checkpointing=all"}));
    CHECK(results_of(site.run(name)) == alone);
  }
  const Words parts = joined(keys, {"run.name=parts", "run.steps_per_job=9",
                                    std::string("parallel.strategy=") + strategy});
  CHECK(site.start_run(joined(parts, {"parallel.ranks=2"}))->wait().exit_code == 75);
  CHECK(site.start_run(parts)->wait().exit_code == 75);
  site.train(joined(parts, {"parallel.ranks=3"}));
  CHECK(results_of(site.run("parts")) == alone);
}

TEST_CASE("experts: a rank that is lost while loads are counted, or behind that, leaves no trace",
          "[integration][experts][recovery][P1][P4]") {
  const RunSite site;
  Words keys = joined(kExperts, {"run.sample_tokens=0", "eval.interval_steps=0"});
  keys[6] = R"(model.balance=["switch:step:0.05", "z:0.001"])";
  site.train(joined(keys, {"run.name=alone"}));
  const Words alone = results_of(site.run("alone"));
  // In the step 11 of a lane of two blocks, which a step passes forward twice and back once.
  const char* const fault = GENERATE("forward:42:1", "wedge:21:1");
  const std::string strategy = GENERATE("none", "full");
  CAPTURE(fault, strategy);
  write_bytes(site / "wedge", "");
  const fs::path held = site / "held";
  Process run(
      joined({"/usr/bin/env", kPatient, std::string("ACTORTRAIN_TEST_FAULT=") + fault,
              "ACTORTRAIN_TEST_WEDGE=" + (site / "wedge").string(),
              "ACTORTRAIN_TEST_FAULT_STAMP=" + held.string(), faulty_program()},
             RunSite::run_words(rank_keys(
                 3, strategy, joined(keys, {"run.name=lost", "recovery.rank_loss=respawn"})))),
      site.path());
  REQUIRE(run.until([&] { return fs::exists(held); }));
  wait_for_event(site.run("lost"), run, "checkpoint_published");
  kill_held(site, site.run("lost"), run, 3);
  const Ended ended = run.wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(count_events(site.run("lost"), "respawned") == 1);
  CHECK(results_of(site.run("lost")) == alone);
}

TEST_CASE("experts: fine-tuning and preferences have the same bits on two ranks",
          "[integration][experts][sft][preference][P1]") {
  const RowSite chat({.row_length = 32, .documents = 100});
  check_split_ranks(chat, joined(joined(kSmall, kPrevious), {"objective.name=sft"}));
  const RowSite pairs({.kind = "preference", .row_length = 32, .documents = 60, .weights = false});
  const Words dpo = joined(joined(kSmall, kPrevious), {"objective.name=dpo"});
  check_split_ranks(pairs, dpo, {"objective.reference=live"});
}

TEST_CASE("experts: unlearning has the same bits on two ranks",
          "[integration][experts][unlearning][P1]") {
  const RunSite site;
  write_rows(site / "retain", {.row_length = 32, .documents = 60, .weights = false});
  write_rows(site / "forget", {.row_length = 32, .documents = 40, .weights = false});
  site.write_config("retain");
  const Words keys =
      joined(kSmall, {"objective.name=sequential_unlearning", "data.forget_dir=forget",
                      "objective.layer_stride=1", "objective.steps_per_layer=4",
                      "objective.gradient_join=same_sign_forget", "schedule.warmup_steps=0"});
  check_split_ranks(site, joined(keys, {R"(model.balance=["switch:0.05", "z:0.001"])"}));
  // Loads are those of one pass, and such a step has two.
  check_mistake(site, RunSite::run_words(joined(keys, kPrevious)),
                {"model.balance", "several passes"});
  check_mistake(site, RunSite::run_words(joined(keys, {R"(model.balance=["switch:step:0.05"])"})),
                {"model.balance", "several passes"});
}

TEST_CASE("experts: multiple choice has the same scores on two ranks, in the run and after it",
          "[integration][experts][choices][P1]") {
  const RunSite site;
  std::string lines;
  for (int i = 0; i < 9; ++i) {
    lines += fmt::format(R"({{"question": "{}?", "choices": ["a", "b", "c", "d"], "answer": {}}})"
                         "\n",
                         i, i % 4);
  }
  write_bytes(site / "letters.jsonl", lines);
  check_split_ranks(site, joined(joined(kSmall, kPrevious),
                                 {"data.sequence_length=64", R"(eval.choices=["letters.jsonl"])"}));
  const auto evaluate = [&](const char* ranks) {
    const Ended ended =
        site.call({"eval", "runs/one", "--ranks", ranks, "--choices", "letters.jsonl"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return ended.out;
  };
  CHECK(has(evaluate("1"), "digest="));
  CHECK(evaluate("2") == evaluate("1"));
}

TEST_CASE(
    "experts: what is frozen, adapted or sharded by unit, and Muon: the same bits on two ranks",
    "[integration][experts][lora][P1]") {
  const auto check = [](const Words& keys, const Words& of_two = {}) {
    CAPTURE(keys);
    const RunSite site;
    check_split_ranks(site, joined(kSmall, keys), of_two);
  };
  check(joined(kPrevious, {R"(train.freeze=["*.experts.*"])"}),
        {R"(parallel.strategy_by_unit=["block 0 = none"])"});
  check({R"(train.freeze=["*.mlp.gate.weight"])", R"(model.balance=["none"])"});
  check({"lora.rank=3", R"(lora.targets=["mlp.experts.*.down_proj", "mlp.gate"])",
         R"(model.balance=["switch:0.05"])"});
  check(joined(kPrevious, {"optimizer.name=muon"}));
}

}  // namespace train::test
