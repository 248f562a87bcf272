#include "engine/objective/preference_loss.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numbers>
#include <set>
#include <string>
#include <vector>

namespace train::engine::preference_loss_test {
namespace {

/// Pairs on both sides of every bend, of unequal lengths.
std::vector<PairLogProbs> pairs() {
  std::vector<PairLogProbs> all;
  for (const double chosen : {-40.0, -13.0, -12.5, -2.0}) {
    for (const double rejected : {-60.0, -14.0, -9.0, -1.5}) {
      all.push_back({.chosen = {chosen, -13.2, 7.0, -0.3},
                     .rejected = {rejected, -12.1, 5.0, -0.2},
                     .chosen_with_prompt = {chosen - 8.0, -20.0, 11.0}});
    }
  }
  return all;
}

PreferenceOptions options() { return {.beta = 0.3, .label_smoothing = 0.1}; }

double derivative(const std::function<double(double)>& f, double at) {
  const double h = 1e-5;
  return (f(at + h) - f(at - h)) / (2.0 * h);
}

void check_derivative(const PreferenceLoss& loss, const PairLogProbs& pair,
                      SequenceLogProbs PairLogProbs::*sequence, double expected) {
  const double found = derivative(
      [&](double policy) {
        PairLogProbs moved = pair;
        (moved.*sequence).policy = policy;
        return loss.of(options(), moved).loss;
      },
      (pair.*sequence).policy);
  CHECK(expected == Approx(found).epsilon(1e-5).margin(1e-7));
}

PairLoss loss_of(const std::string& name, const PreferenceOptions& options,
                 const PairLogProbs& pair) {
  const PreferenceLoss* loss = find_preference_loss(name);
  REQUIRE(loss != nullptr);
  return loss->of(options, pair);
}

}  // namespace

TEST_CASE("preference loss: derivatives are those of finite differences",
          "[engine][preference_loss]") {
  for (const PreferenceLoss& loss : preference_losses()) {
    for (const PairLogProbs& pair : pairs()) {
      CAPTURE(loss.name, pair.chosen.policy, pair.rejected.policy);
      const PairLoss found = loss.of(options(), pair);
      CHECK(std::isfinite(found.loss));
      check_derivative(loss, pair, &PairLogProbs::chosen, found.by_chosen);
      check_derivative(loss, pair, &PairLogProbs::rejected, found.by_rejected);
      check_derivative(loss, pair, &PairLogProbs::chosen_with_prompt, found.by_chosen_with_prompt);
    }
  }
}

TEST_CASE("preference loss: KTO's derivative is that of finite differences",
          "[engine][preference_loss]") {
  const PreferenceOptions kto{.beta = 0.4, .desirable_weight = 1.5, .undesirable_weight = 0.7};
  for (const bool desirable : {true, false}) {
    for (const double ratio : {-6.0, -0.5, 0.0, 2.0, 9.0}) {
      const PairLoss found = kto_loss(kto, desirable, ratio, 0.8);
      const auto loss = [&](double at) { return kto_loss(kto, desirable, at, 0.8).loss; };
      CHECK(found.by_chosen == Approx(derivative(loss, ratio)).epsilon(1e-5).margin(1e-8));
      CHECK((found.by_chosen < 0.0) == desirable);
    }
  }
  CHECK(kto_loss(kto, true, 0.8, 0.8).loss == 0.75);
  CHECK(kto_loss(kto, false, 0.8, 0.8).loss == 0.35);
}

TEST_CASE("preference loss: a policy that is the reference has ln 2 exactly, and no margin",
          "[engine][preference_loss]") {
  const PairLogProbs same{.chosen = {-31.7, -31.7, 9.0}, .rejected = {-12.3, -12.3, 4.0}};
  for (const char* name : {"sigmoid", "dpo_norm"}) {
    const PairLoss loss = loss_of(name, {}, same);
    CHECK(static_cast<float>(loss.loss) == std::numbers::ln2_v<float>);
    CHECK(loss.loss == std::numbers::ln2);
  }
  const PairMetrics metrics = pair_metrics({}, same);
  CHECK(metrics.reward_chosen == 0.0);
  CHECK(metrics.margin == 0.0);
  CHECK(metrics.accuracy == 0.0);
}

TEST_CASE("preference loss: values by hand", "[engine][preference_loss]") {
  // D_c = 2, D_r = -1, n_c = 4, n_r = 2: u = 0.5 * 3 = 1.5.
  const PairLogProbs pair{.chosen = {-8.0, -10.0, 4.0, std::log(0.5)},
                          .rejected = {-6.0, -5.0, 2.0, std::log(0.8)},
                          .chosen_with_prompt = {-12.0, 0.0, 6.0}};
  const PreferenceOptions half{.beta = 0.5, .gamma_beta_ratio = 0.2, .discopop_tau = 0.5};
  const auto s = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  const auto value = [&](const char* name) { return loss_of(name, half, pair).loss; };
  CHECK(value("sigmoid") == Approx(-std::log(s(1.5))));
  CHECK(value("robust") == Approx(value("sigmoid")));  // no wrong label
  CHECK(value("dpo_norm") == Approx(-std::log(s(0.5))));
  CHECK(value("hinge") == 0.0);
  CHECK(value("ipo") == Approx(0.0).margin(1e-15));  // 0.5 + 0.5 - 1
  CHECK(value("simpo") == Approx(-std::log(s(0.5 * (-2.0 + 3.0 - 0.2)))));
  CHECK(value("wpo") == Approx(0.4 * value("sigmoid")));
  const double odds = -2.0 + 3.0 - std::log(1.0 - std::exp(-2.0)) + std::log(1.0 - std::exp(-3.0));
  CHECK(value("orpo") == Approx(2.0 - 0.5 * std::log(s(odds))));
  CHECK(value("nca_pair") ==
        Approx(-std::log(s(1.0)) - std::log(s(-1.0)) / 2.0 - std::log(s(0.5)) / 2.0));
  CHECK(value("bco_pair") == Approx(-std::log(s(1.0)) - std::log(s(0.5))));
  CHECK(value("sppo_hard") == Approx(1.0 + 0.0));
  CHECK(value("apo_zero") == Approx(1.0 - s(1.0) + s(-0.5)));
  CHECK(value("apo_down") == Approx(s(1.0) + 1.0 - s(1.5)));
  CHECK(value("discopop") == Approx(-(1.0 - s(3.0)) * std::log(s(1.5)) + s(3.0) * std::exp(-1.5)));
  CHECK(value("sft") == 2.0);
  const double q = s(1.5);
  CHECK(loss_of("exo_pair", {.beta = 0.5, .label_smoothing = 0.01}, pair).loss ==
        Approx(q * std::log(q / 0.99) + (1.0 - q) * std::log((1.0 - q) / 0.01)));
}

TEST_CASE("preference loss: extreme margins stay finite", "[engine][preference_loss]") {
  for (const double far : {-5000.0, 5000.0}) {
    const PairLogProbs pair{.chosen = {far - 5000.0, -5000.0, 3.0},
                            .rejected = {-5000.0, -5000.0, 3.0},
                            .chosen_with_prompt = {-1.0, 0.0, 1.0}};
    for (const PreferenceLoss& loss : preference_losses()) {
      if (loss.name == "discopop") {
        continue;  // its exponential has no bound
      }
      CAPTURE(loss.name, far);
      const PairLoss found = loss.of({.label_smoothing = 0.1}, pair);
      CHECK(std::isfinite(found.loss));
      CHECK(std::isfinite(found.by_chosen));
      CHECK(std::isfinite(found.by_rejected));
    }
  }
}

TEST_CASE("preference loss: names are found, once each", "[engine][preference_loss]") {
  std::set<std::string_view> names;
  for (const PreferenceLoss& loss : preference_losses()) {
    CHECK(names.insert(loss.name).second);
    CHECK(find_preference_loss(loss.name) == &loss);
  }
  CHECK(find_preference_loss("aot") == nullptr);
}

}  // namespace train::engine::preference_loss_test
