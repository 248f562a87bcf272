// Choices by sigmoids or probabilities with a bias, among all experts or those of the best groups.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "tests/kernels/experts_call.hpp"
#include "tests/support/harness/fixture_file.hpp"

namespace train::kernels::testing::router_choice_test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// The numbers of the `count` largest, the largest first, equal ones by number.
Numbers largest(const Exact& values, Numbers among, std::int64_t count) {
  std::stable_sort(among.begin(), among.end(),
                   [&](std::int32_t a, std::int32_t b) { return values[at(a)] > values[at(b)]; });
  among.resize(at(count));
  return among;
}

Numbers numbered(std::int64_t count) {
  Numbers numbers(at(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Choice of a row by the rule, from choice scores in double.
Numbers exact_choice(const Exact& scores, const RouterForwardParams& p) {
  const std::int64_t size = p.experts / p.groups;
  Exact of_groups;
  for (std::int64_t group = 0; p.groups > 1 && group < p.groups; ++group) {
    Exact own(scores.begin() + group * size, scores.begin() + (group + 1) * size);
    std::sort(own.rbegin(), own.rend());
    of_groups.push_back(own[0] + own[1]);
  }
  Numbers kept = p.groups > 1 ? largest(of_groups, numbered(p.groups), p.kept_groups) : Numbers{0};
  std::sort(kept.begin(), kept.end());
  Numbers among;
  for (const std::int32_t group : kept) {
    for (std::int64_t e = group * size; e < (group + 1) * size; ++e) {
      among.push_back(static_cast<std::int32_t>(e));
    }
  }
  return largest(scores, among, p.slots);
}

/// exact_choice() of all rows.
Numbers exact_choices(const Values& logits, const Values& bias, const RouterForwardParams& p) {
  Numbers all;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    Exact scores = exact_scores(exact(logits), row, p.experts, p.kind);
    for (std::size_t e = 0; e < bias.size(); ++e) {
      scores[e] += static_cast<double>(bias[e]);
    }
    const Numbers own = exact_choice(scores, p);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

/// Sizes of a choice among groups; the second is DeepSeek-V3's.
std::vector<RouterForwardParams> shapes() {
  std::vector<RouterForwardParams> all;
  for (const RouterKind kind : kRouterKinds) {
    const RouterForwardParams shape{.kind = kind, .scale = 2.5F};
    const auto add = [&](std::int64_t experts, std::int64_t slots, std::int64_t groups,
                         std::int64_t kept) {
      RouterForwardParams p = shape;
      p.rows = 23;
      p.experts = experts;
      p.slots = slots;
      p.groups = groups;
      p.kept_groups = kept;
      all.push_back(p);
    };
    add(8, 3, 4, 2);
    add(256, 8, 8, 4);
    add(384, 8, 1, 1);
    add(34, 5, 2, 1);
    add(21, 16, 3, 3);
    add(320, 16, 16, 1);
    add(12, 4, 6, 2);
  }
  return all;
}

std::string name_of(const RouterForwardParams& p) {
  return ExpertSizes{p.rows, p.experts, p.slots}.name() + ", " + std::to_string(p.kept_groups) +
         " of " + std::to_string(p.groups) + " groups, kind " +
         std::to_string(static_cast<int>(p.kind));
}

Values in_range(std::int64_t count, unsigned seed, float low, float high) {
  Values values = random_values(count, seed);
  for (float& value : values) {
    value = low + (high - low) * (value + 1.0F) / 2.0F;
  }
  return values;
}

TEST_CASE("router: the largest sums of score and bias are chosen, of the best groups alone",
          "[kernels][router]") {
  for (RouterForwardParams p : shapes()) {
    for (const auto& [low, high] : {std::pair{0.0F, 0.0F}, {-0.3F, 0.3F}, {-1.5F, 0.0F}}) {
      CAPTURE(name_of(p), low);
      const Values logits = random_values(p.rows * p.experts, 31, 3.0F);
      const Values bias = in_range(p.experts, 32, low, high);
      p.bias = bias.data();
      const Routed found = routed(logits, p);
      CHECK(found.chosen == exact_choices(logits, bias, p));
      // The bias has no part in the weights.
      require_near(found.weights,
                   exact_weights(exact(logits), found.chosen, {p.rows, p.experts, p.slots}, p.kind,
                                 static_cast<double>(p.scale)),
                   1e-6, "weights");
      if (low == 0.0F) {
        p.bias = nullptr;
        CHECK(routed(logits, p).chosen == found.chosen);
      }
    }
  }
}

TEST_CASE("router: equal sums go to the lower expert, equal groups to the lower group",
          "[kernels][router]") {
  // Sums of two different pairs of these are apart, of sigmoids and of probabilities.
  constexpr float levels[] = {0.0F, 1.0F, 3.0F};
  for (RouterForwardParams p : shapes()) {
    CAPTURE(name_of(p));
    Values logits = random_values(p.rows * p.experts, 33);
    for (float& logit : logits) {
      logit = levels[static_cast<int>((logit + 1.0F) * 1.5F) % 3];
    }
    const Values same(at(p.experts), 0.25F);
    p.bias = same.data();
    CHECK(routed(logits, p).chosen == exact_choices(logits, same, p));
  }
  const RouterForwardParams p{.kind = RouterKind::sigmoid_normalised,
                              .rows = 1,
                              .experts = 8,
                              .slots = 4,
                              .groups = 4,
                              .kept_groups = 2};
  CHECK(routed(Values(8, 0.5F), p).chosen == Numbers{0, 1, 2, 3});
  // The group of the largest expert alone is not the best one; the two best are the last ones.
  CHECK(routed({4.0F, -9.0F, -9.0F, -9.0F, 1.0F, 1.0F, 1.0F, 1.0F}, p).chosen ==
        Numbers{4, 5, 6, 7});
}

TEST_CASE("router: sigmoids that round to one number are equal", "[kernels][router]") {
  const RouterForwardParams p{.kind = RouterKind::sigmoid, .rows = 1, .experts = 3, .slots = 2};
  CHECK(routed({20.0F, 30.0F, 40.0F}, p).chosen == Numbers{0, 1});
}

TEST_CASE("router: experts outside the best groups have no chance, whatever the others are",
          "[kernels][router]") {
  RouterForwardParams p{.kind = RouterKind::sigmoid_normalised,
                        .rows = 1,
                        .experts = 8,
                        .slots = 4,
                        .groups = 4,
                        .kept_groups = 2};
  // NaN counts as -Inf, and so does the sum of a group that it leaves one expert.
  const Routed found = routed({nan, 2.0F, nan, nan, 0.0F, 1.0F, -1.0F, -2.0F}, p);
  CHECK(found.chosen == Numbers{5, 4, 6, 7});
  CHECK(std::none_of(found.weights.begin(), found.weights.end(),
                     [](float w) { return std::isnan(w); }));
  const Routed all = routed(Values(8, nan), p);
  CHECK(all.chosen == Numbers{0, 1, 2, 3});
  CHECK(std::all_of(all.weights.begin(), all.weights.end(), [](float w) { return std::isnan(w); }));
  const Values masked{0.0F, 0.0F, -infinity, -infinity, 0.0F, infinity, 0.0F, nan};
  p.bias = masked.data();
  CHECK(routed(Values(8, 0.0F), p).chosen == Numbers{5, 0, 1, 4});
  // Infinities of both signs have no sum.
  const Values opposed{infinity, -infinity, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F};
  p.bias = opposed.data();
  CHECK(routed(Values(8, 0.0F), p).chosen == Numbers{2, 3, 4, 5});
}

TEST_CASE("router: choices by groups depend neither on the threads nor on the other rows",
          "[kernels][router][P1]") {
  for (RouterForwardParams p : shapes()) {
    CAPTURE(name_of(p));
    p.rows = 101;
    const Values logits = random_values(p.rows * p.experts, 34, 3.0F);
    const Values bias = random_values(p.experts, 35, 0.3F);
    p.bias = bias.data();
    require_same_bits(
        [&](int threads) {
          const Routed found = routed(logits, p, threads);
          return joined({Values(found.chosen.begin(), found.chosen.end()), found.weights});
        },
        "router_forward");
    const Routed all = routed(logits, p);
    RouterForwardParams alone = p;
    alone.rows = 1;
    const auto own = logits.begin() + 70 * p.experts;
    const Routed one = routed(Values(own, own + p.experts), alone);
    CHECK(std::equal(one.chosen.begin(), one.chosen.end(), all.chosen.begin() + 70 * p.slots));
    CHECK(std::equal(one.weights.begin(), one.weights.end(), all.weights.begin() + 70 * p.slots));
  }
}

TEST_CASE("router: choices, weights and gradients are those of transformers' router",
          "[kernels][router][reference]") {
  for (const auto& c : test::read_fixture("routers.json")) {
    const auto bias = c.at("bias").get<Values>();
    RouterForwardParams p{.kind = c.at("normalised").get<bool>() ? RouterKind::sigmoid_normalised
                                                                 : RouterKind::sigmoid,
                          .rows = 1,
                          .experts = c.at("experts"),
                          .slots = c.at("slots"),
                          .bias = bias.data(),
                          .groups = c.at("groups"),
                          .kept_groups = c.at("kept_groups"),
                          .scale = c.at("scale")};
    for (const auto& row : c.at("rows")) {
      CAPTURE(name_of(p));
      const auto logits = row.at("logits").get<Values>();
      const auto dweights = row.at("dweights").get<Values>();
      const Routed found = routed(logits, p);
      CHECK(found.chosen == row.at("chosen").get<Numbers>());
      Values dlogits = untouched_values(p.experts);
      run([&](Stream& stream) {
        cpu::router_backward(stream, {.kind = p.kind,
                                      .logits = logits.data(),
                                      .chosen = found.chosen.data(),
                                      .weights = found.weights.data(),
                                      .dweights = dweights.data(),
                                      .dlogits = dlogits.data(),
                                      .rows = 1,
                                      .experts = p.experts,
                                      .slots = p.slots,
                                      .scale = p.scale});
      });
      // Relative to the largest: weights of logits about -80 are of 1e-15.
      const auto compare = [](const Values& actual, const Exact& expected) {
        double most = 0.0;
        for (const double value : expected) {
          most = std::max(most, std::abs(value));
        }
        REQUIRE(actual.size() == expected.size());
        for (std::size_t i = 0; i < actual.size(); ++i) {
          CHECK(static_cast<double>(actual[i]) == Approx(expected[i]).margin(1e-6 * most));
        }
      };
      compare(found.weights, row.at("weights").get<Exact>());
      compare(dlogits, row.at("dlogits").get<Exact>());
    }
  }
}

TEST_CASE("router: groups that do not fit the experts are refused", "[kernels][router]") {
  const auto stream = make_inline_stream(1);
  const Values logits(8);
  Numbers chosen(8);
  Values weights(8);
  const auto refused = [&](std::int64_t slots, std::int64_t groups, std::int64_t kept) {
    try {
      cpu::router_forward(*stream, {.logits = logits.data(),
                                    .chosen = chosen.data(),
                                    .weights = weights.data(),
                                    .rows = 1,
                                    .experts = 8,
                                    .slots = slots,
                                    .groups = groups,
                                    .kept_groups = kept});
    } catch (const CheckFailed&) {
      return true;
    }
    return false;
  };
  CHECK_FALSE(refused(4, 4, 2));
  CHECK_FALSE(refused(8, 1, 1));
  CHECK(refused(2, 0, 1));
  CHECK(refused(2, 3, 1));
  CHECK(refused(2, 8, 4));
  CHECK(refused(2, 4, 0));
  CHECK(refused(2, 4, 5));
  CHECK(refused(5, 4, 2));
}

}  // namespace
}  // namespace train::kernels::testing::router_choice_test
