// Preferences on packed pairs, from the run file to the metrics: the reference that is computed
// first, kept, and read again.

#include <cmath>

#include "tests/integration/sites/row_runs.hpp"

using namespace train::test;

namespace {

const RowSet kPairs{.kind = "preference", .row_length = 32, .documents = 60, .weights = false};

const Words kPairRun = {"objective.name=dpo", "run.sample_tokens=0", "run.digest_interval_steps=1",
                        "checkpoint.interval_steps=4"};

const Words& pair_results() {
  static const Words results = row_results(kPairs, kPairRun);
  return results;
}

}  // namespace

TEST_CASE("preference: a run starts at ln 2 without a margin, and learns to prefer",
          "[integration][preference]") {
  const RowSite site(kPairs);
  const Ended ended = site.train(kPairRun);
  INFO(ended.out << ended.err);
  CHECK(fs::exists(site.run() / "reference.log_probs"));
  nlohmann::json first;
  nlohmann::json last;
  nlohmann::json evaluation;
  for (const nlohmann::json& line : metrics_of(site.run())) {
    if (line.contains("val_loss")) {
      evaluation = evaluation.is_null() ? line : evaluation;
    } else if (line.contains("loss")) {
      first = first.is_null() ? line : first;
      last = line;
    }
  }
  CHECK(static_cast<float>(first.at("loss").get<double>()) == static_cast<float>(std::log(2.0)));
  CHECK(first.at("rewards/margins") == 0.0);
  CHECK(first.at("rewards/chosen") == 0.0);
  CHECK(first.at("rewards/rejected") == 0.0);
  CHECK(first.at("rewards/accuracies") == 0.0);
  CHECK(first.at("logps/chosen") < 0.0);
  CHECK(first.at("logps/rejected") < 0.0);
  CHECK(last.at("loss") < first.at("loss"));
  CHECK(last.at("rewards/margins") > 0.0);
  // Before the first step the validation pairs have the reference's log-probabilities, too.
  CHECK(static_cast<float>(evaluation.at("val_loss").get<double>()) ==
        static_cast<float>(std::log(2.0)));
  CHECK(evaluation.at("val_rewards/margins") == 0.0);
  CHECK_FALSE(evaluation.contains("val_perplexity"));
  check_called(site, {"verify", "runs/tiny"});
}

TEST_CASE("preference: the same bits at one, two and three ranks",
          "[integration][preference][P1]") {
  check_ranks(kPairs, kPairRun, pair_results());
}

TEST_CASE(
    "preference: a mixture of two sources learns from both, the same at ranks and after a stop",
    "[integration][preference][mixture][P1]") {
  const auto write_sources = [](const RunSite& site) {
    write_rows(site / "long", kPairs);
    RowSet others = kPairs;
    others.documents = 25;
    others.trained = 3;
    write_rows(site / "short", others);
    site.write_config("long");
    std::string text = read_bytes(site / "tiny.toml");
    const std::string dir = "dir = \"long\"\n";
    text.replace(text.find(dir), dir.size(), "");
    text +=
        "[[data.sources]]\ndir = \"long\"\nweight = 2\n"
        "[[data.sources]]\ndir = \"short\"\nweight = 1\n";
    write_bytes(site / "tiny.toml", text);
  };
  const RunSite one;
  write_sources(one);
  one.train(kPairRun);
  nlohmann::json first, last;
  for (const nlohmann::json& line : metrics_of(one.run())) {
    if (line.contains("loss")) {
      first = first.is_null() ? line : first;
      last = line;
    }
  }
  CHECK(static_cast<float>(first.at("loss").get<double>()) == static_cast<float>(std::log(2.0)));
  CHECK(last.at("loss") < first.at("loss"));
  CHECK(last.at("rewards/margins") > 0.0);
  // 3 lanes of 2 rows a step: twice as many of the first source.
  CHECK(last.at("source_tokens/long").get<int>() == 2 * last.at("source_tokens/short").get<int>());
  CHECK(last.contains("source_loss/long"));
  const Ended verified = one.call({"verify", "runs/tiny"});
  INFO(verified.err);
  CHECK(verified.exit_code == 0);

  for (const auto& [ranks, strategy] : {std::pair(2, "full"), std::pair(3, "none")}) {
    CAPTURE(ranks, strategy);
    const RunSite site;
    write_sources(site);
    const Words half =
        joined(rank_keys(ranks, strategy), joined(kPairRun, {"run.steps_per_job=9"}));
    CHECK(site.call(RunSite::run_words(half)).exit_code == 75);
    site.train(joined(rank_keys(5 - ranks, strategy), kPairRun));
    CHECK(results_of(site.run()) == results_of(one.run()));
  }
}

TEST_CASE("preference: a live reference gives the bits of a cached one, on ranks and after a stop",
          "[integration][preference][P1]") {
  for (const char* strategy : {"none", "full"}) {
    CAPTURE(strategy);
    const RowSite site(kPairs);
    const Words live =
        joined(joined(rank_keys(2, strategy), kPairRun), {"objective.reference=live"});
    CHECK(site.call(RunSite::run_words(joined(live, {"run.steps_per_job=5"}))).exit_code == 75);
    site.train(live);
    CHECK(results_of(site.run()) == pair_results());
    // Validation pairs, too, of which nothing is kept.
    check_called(site, {"eval", "runs/tiny"});
  }
}

TEST_CASE("preference: a run with other first weights than its reference's does not go on",
          "[integration][preference][mistakes]") {
  for (const char* reference : {"cache", "live"}) {
    CAPTURE(reference);
    const RowSite site(kPairs);
    const Words keys = joined(kPairRun, {fmt::format("objective.reference={}", reference)});
    CHECK(site.call(RunSite::run_words(joined(keys, {"run.steps_per_job=4"}))).exit_code == 75);
    const fs::path file = site.run() / "reference.log_probs";
    std::string kept = read_bytes(file);
    const std::string model = "\"model\":\"seed ";
    REQUIRE(kept.find(model) != std::string::npos);
    kept.insert(kept.find(model) + model.size(), "9");
    write_bytes(file, kept);
    const Ended ended = site.call(RunSite::run_words(keys));
    INFO(ended.err);
    CHECK(ended.exit_code != 0);
    CHECK(has(ended.err, "was made with weights seed 9"));
  }
}

TEST_CASE("preference: after kill -9 the kept reference is read, on another number of ranks",
          "[integration][preference][P1][P3]") {
  const RowSite site(kPairs);
  kill_in_step_11(site, kPairRun);
  const std::string kept = read_bytes(site.run() / "reference.log_probs");
  const Ended ended = site.train(joined(rank_keys(2, "full"), kPairRun));
  CHECK(has(ended.err, "resumed step=8 "));
  CHECK(results_of(site.run()) == pair_results());
  CHECK(read_bytes(site.run() / "reference.log_probs") == kept);
}

TEST_CASE(
    "preference: a rank or the launcher that is killed amid the sweep leaves no half reference",
    "[integration][preference][failure][P1][P3]") {
  for (const bool launcher : {false, true}) {
    CAPTURE(launcher);
    const RowSite site(kPairs);
    const Words keys = joined(rank_keys(2, "full"), kPairRun);
    // In the second of its commands: of two blocks for each of two lanes.
    write_bytes(site / "wedge", "");
    Process run(
        joined({"/usr/bin/env", "ACTORTRAIN_TEST_FAULT=forward:6:1",
                "ACTORTRAIN_TEST_WEDGE=" + (site / "wedge").string(),
                "ACTORTRAIN_TEST_FAULT_STAMP=" + (site / "held").string(), faulty_program()},
               RunSite::run_words(keys)),
        site.path());
    const auto workers = started_workers(site, run, 2);
    REQUIRE(run.until([&] { return fs::exists(site / "held"); }));
    CHECK_FALSE(fs::exists(site.run() / "reference.log_probs"));
    if (launcher) {
      run.send(SIGKILL);
    } else {
      REQUIRE(::kill(workers.at(1), SIGKILL) == 0);
    }
    let_go(site);
    const Ended ended = run.wait();
    INFO(ended.err);
    if (launcher) {
      CHECK(ended.signal == SIGKILL);
      REQUIRE(comes_true([&] { return processes_with(site.path().string() + "/").empty(); }));
      CHECK_FALSE(fs::exists(site.run() / "reference.log_probs"));
      // What the first command computed is kept, for any number of ranks.
      const Ended again = site.train(joined(rank_keys(3, "none"), kPairRun));
      CHECK(has(again.err, "reference_resumed commands=1 of "));
    } else {
      CHECK(ended.exit_code == 0);
      CHECK(has(ended.err, "rank 1"));
      CHECK(has(ended.err, "reference_resumed commands=1 of "));
    }
    CHECK_FALSE(fs::exists(site.run() / "reference.log_probs.partial"));
    CHECK(results_of(site.run()) == pair_results());
  }
}

TEST_CASE("preference: a run does not go on without its reference, or with a damaged one",
          "[integration][preference]") {
  const RowSite site(kPairs);
  CHECK(site.call(RunSite::run_words(joined(kPairRun, {"run.steps_per_job=4"}))).exit_code == 75);
  const fs::path file = site.run() / "reference.log_probs";
  const std::string kept = read_bytes(file);
  const auto refused = [&](const std::string& part) {
    const Ended ended = site.call(RunSite::run_words(kPairRun));
    INFO(ended.err);
    CHECK(ended.exit_code != 0);
    CHECK(has(ended.err, "reference.log_probs"));
    CHECK(has(ended.err, part));
  };
  write_bytes(file, kept.substr(0, kept.size() - 3));
  refused("is damaged");
  fs::remove(file);
  refused("is missing");
  write_bytes(file, kept);
  site.train(kPairRun);
  CHECK(results_of(site.run()) == pair_results());
}

TEST_CASE("preference: mistakes are told in one line before anything starts",
          "[integration][preference][mistakes]") {
  const RowSite site(kPairs);
  const auto check = [&](const Words& keys, const Words& parts) {
    check_mistake(site, RunSite::run_words(keys), parts);
  };
  check({"objective.name=sft"}, {"holds rows of kind \"preference\""});
  check({"objective.name=dpo", "objective.gamma_beta_ratio=0.5"},
        {"objective.gamma_beta_ratio", "objective.name = \"dpo\"", "simpo"});
  check({"objective.name=dpo", "objective.loss=exo_pair"},
        {"objective.label_smoothing", "exo_pair"});
  check({"objective.name=dpo", "objective.loss=robust", "objective.label_smoothing=0.5"},
        {"objective.label_smoothing", "robust"});
  check({"objective.name=dpo", "objective.loss=hinge", "objective.label_smoothing=0.1"},
        {"objective.label_smoothing", "hinge"});
  check({"objective.name=dpo", "model.z_loss_coeff=0.1"}, {"model.z_loss_coeff", "dpo"});
  check({"objective.name=dpo", "objective.desirable_weight=2"},
        {"objective.desirable_weight", "objective.name = \"dpo\"", "kto"});
  check({"objective.name=kto"}, {"holds rows of kind \"preference\"", "\"label\""});
  const RowSite few({.kind = "kto", .row_length = 32, .documents = 60, .weights = false});
  check_mistake(few, RunSite::run_words({"objective.name=kto"}),
                {"batch.micro_batch", "a lane has", "8 or more"});
  const RowSite other({.row_length = 32, .documents = 60});
  check_mistake(other, RunSite::run_words({"objective.name=dpo"}),
                {"objective.name = \"dpo\"", "\"chosen\" and \"rejected\""});
}

TEST_CASE("preference: KTO starts at half the weights, learns, and has the same bits on ranks",
          "[integration][preference][P1]") {
  const auto train = [](const Words& keys, std::vector<nlohmann::json>& metrics) {
    const RowSite site({.kind = "kto", .row_length = 32, .documents = 160, .weights = false});
    const Ended ended =
        site.train(joined(keys, {"objective.name=kto", "batch.micro_batch=8", "run.sample_tokens=0",
                                 "optimizer.lr=1e-3", "run.digest_interval_steps=1"}));
    INFO(ended.out << ended.err);
    metrics = metrics_of(site.run());
    check_called(site, {"verify", "runs/tiny"});
    return results_of(site.run());
  };
  std::vector<nlohmann::json> metrics;
  const Words alone = train({}, metrics);
  nlohmann::json first;
  nlohmann::json last;
  for (const nlohmann::json& line : metrics) {
    if (line.contains("loss") && !line.contains("val_loss")) {
      first = first.is_null() ? line : first;
      last = line;
    }
  }
  CHECK(static_cast<float>(first.at("loss").get<double>()) == 0.5F);
  CHECK(first.at("kl") == 0.0);
  CHECK(first.at("rewards/margins") == 0.0);
  CHECK(last.at("loss") < 0.5);
  CHECK(last.at("rewards/margins") > 0.0);
  CHECK(train(rank_keys(3, "full"), metrics) == alone);
  CHECK(train(joined(rank_keys(2, "none"), {"objective.reference=live"}), metrics) == alone);
}
