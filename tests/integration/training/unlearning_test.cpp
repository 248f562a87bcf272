// Sequential unlearning from two directories of rows to the metrics: steps of two passes, a layer
// after the other.

#include <cmath>

#include "tests/integration/sites/held_runs.hpp"
#include "tests/support/inputs/packed_rows.hpp"

using namespace train::test;

namespace {

/// A site whose run retains retain/ and forgets forget/.
struct UnlearningSite : RunSite {
  UnlearningSite() {
    write_rows(path() / "retain", {.row_length = 32, .documents = 60, .weights = false});
    write_rows(path() / "forget", {.row_length = 32, .documents = 40, .weights = false});
    write_config("retain");
  }
};

const Words kUnlearning = {"objective.name=sequential_unlearning",
                           "data.forget_dir=forget",
                           "objective.layer_stride=1",
                           "objective.steps_per_layer=6",
                           "objective.gradient_join=same_sign_forget",
                           "run.steps=12",
                           "run.sample_tokens=0",
                           "run.digest_interval_steps=1",
                           "schedule.warmup_steps=0",
                           "eval.interval_steps=4",
                           "checkpoint.interval_steps=4"};

/// The unbroken run of one rank.
const Words& unlearning_results() {
  static const Words results = [] {
    const UnlearningSite site;
    site.train(kUnlearning);
    return results_of(site.run());
  }();
  return results;
}

}  // namespace

TEST_CASE("unlearning: steps say what both passes come to, by layer", "[integration][unlearning]") {
  const UnlearningSite site;
  Words plan = RunSite::run_words(kUnlearning);
  plan.emplace_back("--dry-run");
  const Ended planned = site.call(plan);
  CHECK(has(planned.out, "1, 0, one after the other; gradients, masters and moments of one at a"));
  CHECK(has(planned.out, "2 passes x "));
  const Ended ended = site.train(kUnlearning);
  INFO(ended.out << ended.err);
  CHECK(has(ended.err, "next_phase generation=1 step=6"));
  std::vector<nlohmann::json> steps;
  for (const nlohmann::json& line : metrics_of(site.run())) {
    if (line.contains("grad_norm")) {
      steps.push_back(line);
    } else {
      CHECK(line.contains("val_perplexity"));  // Of what is retained.
    }
  }
  REQUIRE(steps.size() == 12);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    CAPTURE(step);
    const nlohmann::json& line = steps[step];
    const bool first = step < 6;
    CHECK(line.at("phase_layer") == (first ? 1.0 : 0.0));
    CHECK(line.at("unit_grad_norm").at("embedding") == 0.0);
    CHECK((line.at("unit_grad_norm").at("block 1") > 0.0) == first);
    CHECK((line.at("unit_grad_norm").at("block 0") > 0.0) != first);
    CHECK((line.at("retain_grad_norm/layer_0") > 0.0) != first);
    CHECK((line.at("forget_grad_norm/layer_1") > 0.0) == first);
    CHECK(line.at("same_sign_pct") > 0.0);
    CHECK(line.at("same_sign_pct") < 100.0);
    const double total =
        line.at("retain_coefficient").get<double>() * line.at("retain_loss").get<double>() +
        line.at("forget_coefficient").get<double>() * line.at("forget_loss").get<double>();
    CHECK(line.at("loss").get<double>() == Approx(total));
  }
  CHECK(steps.front().at("retain_coefficient") == 5.0);
  CHECK(steps.front().at("forget_coefficient") == 5.0);
  CHECK(steps.back().at("retain_loss") < steps.front().at("retain_loss"));
  const Ended verified = site.call({"verify", "runs/tiny"});
  INFO(verified.out << verified.err);
  CHECK(verified.exit_code == 0);
}

TEST_CASE("unlearning: the same bits at two and three ranks", "[integration][unlearning][P1]") {
  for (const auto& [ranks, strategy] : {std::pair(2, "none"), std::pair(3, "full")}) {
    CAPTURE(ranks, strategy);
    const UnlearningSite site;
    site.train(joined(rank_keys(ranks, strategy), kUnlearning));
    CHECK(results_of(site.run()) == unlearning_results());
  }
}

TEST_CASE("unlearning: a job that ends in the middle of a phase goes on, on other ranks",
          "[integration][unlearning][P1][P3]") {
  const UnlearningSite site;
  const Words three = joined(rank_keys(3, "full"), kUnlearning);
  CHECK(site.call(RunSite::run_words(joined(three, {"run.steps_per_job=3"}))).exit_code == 75);
  CHECK(site.call(RunSite::run_words(joined(kUnlearning, {"run.steps_per_job=5"}))).exit_code ==
        75);
  const Ended ended = site.train(joined(rank_keys(2, "none"), kUnlearning));
  CHECK(has(ended.err, "resumed step=8 "));
  CHECK(results_of(site.run()) == unlearning_results());
}

TEST_CASE(
    "unlearning: compared with the model that began the run, on other ranks and after a break",
    "[integration][unlearning][P1][P3]") {
  const Words compared =
      joined(kUnlearning, {"objective.retain_loss=kl", "objective.forget_loss=npo",
                           "objective.beta=0.5", "objective.l2sp_coefficient=0.1"});
  const UnlearningSite alone;
  alone.train(compared);
  const Words results = results_of(alone.run());
  std::vector<nlohmann::json> steps;
  for (const nlohmann::json& line : metrics_of(alone.run())) {
    if (line.contains("grad_norm")) {
      steps.push_back(line);
    }
  }
  REQUIRE(steps.size() == 12);
  CHECK(steps.front().at("retain_loss") == 0.0);
  CHECK(steps.front().at("forget_loss").get<double>() == Approx(std::log(2.0)).epsilon(1e-9));
  CHECK(steps.back().at("retain_loss") > 0.0);
  CHECK(steps.back().at("forget_loss") < steps.front().at("forget_loss"));
  const Ended replayed = alone.call({"replay", "runs/tiny"});
  INFO(replayed.out << replayed.err);
  CHECK(replayed.exit_code == 0);

  const UnlearningSite ranks;
  ranks.train(joined(rank_keys(3, "none"), compared));
  CHECK(results_of(ranks.run()) == results);

  const UnlearningSite broken;
  const Words full = joined(rank_keys(2, "full"), compared);
  CHECK(broken.call(RunSite::run_words(joined(full, {"run.steps_per_job=5"}))).exit_code == 75);
  broken.train(compared);
  CHECK(results_of(broken.run()) == results);
}

TEST_CASE("unlearning: hidden states of the layer that is trained stay near the first model's",
          "[integration][unlearning][P1][P3]") {
  const Words compared = joined(kUnlearning, {"objective.retain_loss=l2", "eval.interval_steps=0",
                                              "objective.gradient_join=sum"});
  const UnlearningSite alone;
  const Ended ended = alone.train(compared);
  CHECK(has(ended.err, "next_phase generation=1 step=6"));
  std::vector<double> losses;
  for (const nlohmann::json& line : metrics_of(alone.run())) {
    losses.push_back(line.at("retain_loss"));
    if (losses.back() == 0.0) {
      CHECK(line.at("retain_grad_norm") == 0.0);
    }
  }
  REQUIRE(losses.size() == 12);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    CHECK((losses[step] == 0.0) == (step % 6 == 0));  // A phase begins where the first model was.
  }
  const UnlearningSite broken;
  const Words full = joined(rank_keys(3, "full"), compared);
  CHECK(broken.call(RunSite::run_words(joined(full, {"run.steps_per_job=9"}))).exit_code == 75);
  broken.train(compared);
  CHECK(results_of(broken.run()) == results_of(alone.run()));
}

TEST_CASE("unlearning: weights are driven away from the first model's, without rows to forget",
          "[integration][unlearning][P1][P3]") {
  const Words rewarded = joined(
      kUnlearning, {"objective.forget_loss=max_update", "data.forget_dir=", "eval.interval_steps=0",
                    "objective.gradient_join=sum"});
  const UnlearningSite alone;
  Words plan = RunSite::run_words(rewarded);
  plan.emplace_back("--dry-run");
  CHECK_FALSE(has(alone.call(plan).out, "2 passes x "));
  alone.train(rewarded);
  const std::vector<nlohmann::json> steps = metrics_of(alone.run());
  REQUIRE(steps.size() == 12);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    CAPTURE(step);
    const nlohmann::json& line = steps[step];
    CHECK((line.at("forget_loss") == 0.0) == (step % 6 == 0));  // A phase begins there.
    CHECK((line.at("forget_grad_norm") == 0.0) == (step % 6 == 0));
    if (step % 6 > 0) {
      CHECK(line.at("forget_loss") < steps[step - 1].at("forget_loss"));
    }
  }
  const Ended replayed = alone.call({"replay", "runs/tiny", "--from", "7", "--to", "12"});
  INFO(replayed.out << replayed.err);
  CHECK(replayed.exit_code == 0);
  const UnlearningSite broken;
  const Words full = joined(rank_keys(3, "full"), rewarded);
  CHECK(broken.call(RunSite::run_words(joined(full, {"run.steps_per_job=9"}))).exit_code == 75);
  broken.train(joined(rank_keys(2, "none"), rewarded));
  CHECK(results_of(broken.run()) == results_of(alone.run()));
}

TEST_CASE("unlearning: a checkpoint has moments of the layer that goes on; each phase is replayed",
          "[integration][unlearning]") {
  const UnlearningSite site;
  site.train(joined(kUnlearning, {"checkpoint.keep_last=9"}));
  const auto shown = [&](const char* step) {
    return site.call({"checkpoints", "show", "runs/tiny", step}).out;
  };
  for (const auto& [step, own, other] :
       {std::tuple("4", "h.1.", "h.0."), std::tuple("6", "h.1.", "h.0."),
        std::tuple("8", "h.0.", "h.1."), std::tuple("12", "h.0.", "h.1.")}) {
    CAPTURE(step);
    const std::string text = shown(step);
    INFO(text);
    CHECK(has(text, std::string("optimizer.exp_avg.transformer.") + own));
    CHECK_FALSE(has(text, std::string("optimizer.exp_avg.transformer.") + other));
    CHECK(has(text, std::string("model.transformer.") + other));
  }
  for (const auto& [from, to] : {std::pair("1", "6"), std::pair("7", "12"), std::pair("9", "12")}) {
    const Ended replayed = site.call({"replay", "runs/tiny", "--from", from, "--to", to});
    INFO(replayed.out << replayed.err);
    CHECK(replayed.exit_code == 0);
    CHECK(has(replayed.out, "same bits"));
  }
  check_mistake(site, {"replay", "runs/tiny", "--from", "5", "--to", "8"},
                {"more than one phase", "--to 6", "--from 7"});
}

TEST_CASE("unlearning: a plan that does not fit is one line", "[integration][unlearning]") {
  const UnlearningSite site;
  const auto refused = [&](const Words& keys, const Words& parts) {
    check_mistake(site, RunSite::run_words(joined(kUnlearning, keys)), parts);
  };
  refused({"run.steps=13"}, {"run.steps is 13", "set run.steps = 12"});
  refused({"objective.first_layer=2"}, {"objective.first_layer is 2", "0 to 1"});
  refused({"objective.first_layer=0", "objective.last_layer=1"}, {"objective.last_layer"});
  refused({"objective.gradient_join=product"}, {"objective.gradient_join", "same_sign_forget"});
  refused({"objective.frozen_layers=free"}, {"objective.frozen_layers", "skip_update"});
  refused({"data.forget_dir=nowhere"}, {"nowhere"});
  refused({"data.forget_dir="}, {"data.forget_dir", "is missing"});
  refused({"model.z_loss_coeff=0.1"}, {"model.z_loss_coeff", "no z-loss"});
  refused({"objective.label_smoothing=0.1"},
          {"objective.label_smoothing", "sequential_unlearning"});
  refused({"objective.beta=0.3"}, {"objective.beta", "belongs to", "npo", "leave it out"});
  refused({"objective.top_k=7"}, {"objective.top_k", "belongs to", "top_k_entropy"});
  refused({"objective.forget_loss=most"}, {"objective.forget_loss", "random_targets", "max_entropy",
                                           "top_k_entropy", "npo", "max_update"});
  refused({"objective.forget_loss=max_update"},
          {"data.forget_dir", "has no effect", "max_update", "leave it out"});
  refused({"objective.retain_loss=most"}, {"objective.retain_loss", "nll", "kl", "l2"});
  refused({"train.freeze=[\"block 1\"]"}, {"train.freeze", "block 1"});
  check_mistake(site, RunSite::run_words({"data.forget_dir=forget", "objective.name=sft"}),
                {"data.forget_dir", "has no effect"});
}
