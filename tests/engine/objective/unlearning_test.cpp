#include "engine/objective/unlearning.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/objective/registry.hpp"
#include "tests/engine/objective/unlearning_losses.hpp"

namespace train::engine::unlearning_test {
namespace {

using namespace testing;

using Json = nlohmann::json;

Json fixture() {
  std::ifstream file(ACTORTRAIN_SOURCE_DIR "/tests/reference/fixtures/unlearning.json");
  REQUIRE(file.good());
  return Json::parse(file);
}

void check_same(const LogitLoss& found, const Json& expected) {
  CHECK(found.loss == Approx(expected.at("loss").get<double>()).epsilon(1e-12).margin(1e-13));
  const auto gradient = expected.at("gradient").get<std::vector<double>>();
  REQUIRE(found.by_logits.size() == gradient.size());
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    CHECK(found.by_logits[i] == Approx(gradient[i]).epsilon(1e-11).margin(1e-13));
  }
}

}  // namespace

TEST_CASE("unlearning: losses of rows and their gradients are torch's", "[engine][unlearning]") {
  const Json cases = fixture();
  for (const Json& row : cases.at("rows")) {
    const auto logits = row.at("logits").get<std::vector<double>>();
    const auto reference = row.at("reference").get<std::vector<double>>();
    const auto target = row.at("target").get<std::int32_t>();
    check_same(nll_loss(logits, target), row.at("nll"));
    check_same(kl_loss(logits, reference), row.at("kl"));
    check_same(random_target_loss(logits, target), row.at("random_target"));
    check_same(max_entropy_loss(logits), row.at("max_entropy"));
    check_same(top_k_entropy_loss(logits, cases.at("top").get<std::int64_t>()),
               row.at("top_k_entropy"));
    check_same(hidden_distance(logits, reference), row.at("distance"));
  }
  for (const Json& one : cases.at("npo")) {
    const ScalarLoss found = npo_loss(one.at("ratio").get<double>(), one.at("beta").get<double>());
    CHECK(found.loss == Approx(one.at("loss").get<double>()).epsilon(1e-12));
    CHECK(found.by_value == Approx(one.at("gradient").get<double>()).epsilon(1e-12));
  }
}

TEST_CASE("unlearning: at their minima losses have no gradient", "[engine][unlearning]") {
  const std::vector<double> flat(9, 3.0);
  CHECK(max_entropy_loss(flat).loss == Approx(1.0));
  for (const double each : max_entropy_loss(flat).by_logits) {
    CHECK(std::abs(each) < 1e-16);
  }
  const std::vector<double> row = {0.5, -1.0, 2.0};
  CHECK(kl_loss(row, row).loss == 0.0);
  for (const double each : kl_loss(row, row).by_logits) {
    CHECK(each == 0.0);
  }
  CHECK(hidden_distance(row, row).by_logits == std::vector<double>(3, 0.0));
  // Of equal logits those of the lowest ids are among the largest.
  const std::vector<double> ties = {1.0, 2.0, 1.0, 2.0, 1.0};
  const auto found = top_k_entropy_loss(ties, 3).by_logits;
  CHECK(found[0] != 0.0);
  CHECK(found[2] == 0.0);
  CHECK(found[4] == 0.0);
}

TEST_CASE("unlearning: joined gradients are torch's; what underflows still agrees",
          "[engine][unlearning]") {
  const Json join = fixture().at("join");
  const auto forget = join.at("forget").get<std::vector<float>>();
  const std::pair<GradientJoin, std::string> joins[] = {{GradientJoin::sum, "sum"},
                                                        {GradientJoin::symmetric, "symmetric"},
                                                        {GradientJoin::asymmetric, "asymmetric"}};
  for (const auto& [kind, name] : joins) {
    auto joined = join.at("retain").get<std::vector<float>>();
    CHECK(join_gradients(kind, joined, forget) == join.at("agree").get<std::int64_t>());
    CHECK(joined == join.at(name).get<std::vector<float>>());
  }
  std::vector<float> tiny = {1e-30F, -1e-30F, 0.0F};
  const std::vector<float> others = {1e-30F, 1e-30F, 1.0F};
  CHECK(join_gradients(GradientJoin::symmetric, tiny, others) == 1);
  CHECK(tiny == std::vector<float>{1e-30F + 1e-30F, 0.0F, 0.0F});
}

TEST_CASE("unlearning: phases go from the back to the front, factors with the examples seen",
          "[engine][unlearning]") {
  const UnlearningPhases phases{.examples = 3200};
  CHECK(phases.layers() == std::vector<std::int64_t>{31, 27, 23, 19, 15, 11});
  CHECK(phases.steps() == 600);
  CHECK(unlearning_place(phases, 0).layer == 31);
  CHECK(unlearning_place(phases, 99).examples_seen == 3168);
  CHECK(unlearning_place(phases, 100).layer == 27);
  CHECK(unlearning_place(phases, 100).examples_seen == 0);
  CHECK(unlearning_place(phases, 599).layer == 11);
  CHECK(UnlearningPhases{.examples = 33, .batch = 32}.steps_per_phase() == 2);
  CHECK_THROWS(unlearning_place(phases, 600));
  for (const Json& one : fixture().at("schedule")) {
    const UnlearningFactors factors{.ramp_retain_from_zero = one.at("zero").get<bool>(),
                                    .forget_layer_scale = one.at("scale").get<double>()};
    const LossFactors found = loss_factors(
        factors, phases, {one.at("layer").get<std::int64_t>(), one.at("seen").get<std::int64_t>()});
    CHECK(found.retain == Approx(one.at("retain").get<double>()));
    CHECK(found.forget == Approx(one.at("forget").get<double>()));
  }
}

TEST_CASE("unlearning: drawn targets are uniform, and a function of seed, step and row",
          "[engine][unlearning]") {
  constexpr std::int64_t kVocab = 13;
  std::vector<int> counts(kVocab);
  int same_in_next_step = 0;
  int same_of_other_seed = 0;
  for (std::int64_t step = 0; step < 20; ++step) {
    for (std::int64_t row = 0; row < 500; ++row) {
      const std::int32_t target = drawn_target(7, step, row, kVocab);
      REQUIRE((target >= 0 && target < kVocab));
      CHECK(target == drawn_target(7, step, row, kVocab));
      ++counts[static_cast<std::size_t>(target)];
      same_in_next_step += target == drawn_target(7, step + 1, row, kVocab) ? 1 : 0;
      same_of_other_seed += target == drawn_target(8, step, row, kVocab) ? 1 : 0;
    }
  }
  for (const int count : counts) {
    CHECK(count == Approx(10000.0 / kVocab).epsilon(0.15));
  }
  CHECK(same_in_next_step == Approx(10000.0 / kVocab).epsilon(0.15));
  CHECK(same_of_other_seed == Approx(10000.0 / kVocab).epsilon(0.15));
}

TEST_CASE("unlearning: targets are drawn where there are some, by step and row alone",
          "[engine][unlearning]") {
  configs::ObjectiveSection section;
  section.name = "sequential_unlearning";
  section.first_layer = 1;
  const std::vector<Pass> passes = make_objective(section)->passes(3);
  CHECK_FALSE(passes.front().target_seed);
  REQUIRE(passes.back().target_seed == 0);
  std::vector<std::int32_t> targets(64, 5);
  targets[7] = -1;
  auto later = targets;
  draw_targets(0, 3, 0, 100, targets);
  CHECK(targets[7] == -1);
  CHECK(targets[8] == drawn_target(0, 3, 8, 100));
  draw_targets(0, 3, 64, 100, later);
  CHECK(later[0] == drawn_target(0, 3, 64, 100));
}

}  // namespace train::engine::unlearning_test
