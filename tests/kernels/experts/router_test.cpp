#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/check.hpp"
#include "tests/kernels/experts_call.hpp"

namespace train::kernels::testing::router_test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

Values logits_of(const ExpertSizes& sizes) {
  return random_values(sizes.rows * sizes.experts, 11, 3.0F);
}

TEST_CASE("router: a row's choice is its largest probabilities, the largest first",
          "[kernels][router]") {
  for (const ExpertSizes& sizes : kExpertSizes) {
    CAPTURE(sizes.name());
    const Values logits = logits_of(sizes);
    const Routed found = routed(logits, sizes, RouterKind::softmax);
    for (std::int64_t row = 0; row < sizes.rows; ++row) {
      const float* of_row = logits.data() + row * sizes.experts;
      Numbers expected(at(sizes.experts));
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(),
                       [&](std::int32_t a, std::int32_t b) { return of_row[a] > of_row[b]; });
      expected.resize(at(sizes.slots));
      const auto chosen = found.chosen.begin() + row * sizes.slots;
      CHECK(Numbers(chosen, chosen + sizes.slots) == expected);
    }
    for (const RouterKind kind : kRouterKinds) {
      const Routed of_kind = routed(logits, sizes, kind);
      CHECK(of_kind.chosen == found.chosen);
      require_near(of_kind.weights, exact_weights(exact(logits), found.chosen, sizes, kind), 1e-6,
                   "weights");
    }
  }
}

TEST_CASE("router: equal probabilities go to the lower expert", "[kernels][router]") {
  for (const std::int64_t experts : {3, 17, 64}) {
    for (std::int64_t slots = 1; slots <= 3; ++slots) {
      const ExpertSizes sizes{.rows = 2, .experts = experts, .slots = slots};
      Values logits(at(2 * experts), 0.5F);
      logits[at(2 * experts - 1)] = 0.75F;  // The second row's last expert is the largest.
      const Routed found = routed(logits, sizes, RouterKind::softmax);
      Numbers expected(at(slots));
      std::iota(expected.begin(), expected.end(), 0);
      expected.push_back(static_cast<std::int32_t>(experts - 1));
      for (std::int64_t i = 1; i < slots; ++i) {
        expected.push_back(static_cast<std::int32_t>(i - 1));
      }
      CHECK(found.chosen == expected);
    }
  }
}

TEST_CASE("router: logits too near for their probabilities to differ are equal",
          "[kernels][router]") {
  const float next = std::nextafter(0.0F, 1.0F);
  const Routed found = routed({0.0F, next, -1.0F}, {1, 3, 2}, RouterKind::softmax);
  CHECK(found.chosen == Numbers{0, 1});
}

TEST_CASE("router: a row that has no probabilities is routed all the same, and its weights say so",
          "[kernels][router]") {
  for (const Values& row :
       {Values{0.0F, nan, 1.0F, 2.0F}, Values{nan, nan, nan, nan},
        Values{-infinity, -infinity, -infinity, -infinity}, Values{0.0F, 1.0F, 2.0F, infinity}}) {
    for (const RouterKind kind : {RouterKind::softmax, RouterKind::softmax_normalised}) {
      const Values logits = joined({{4.0F, 1.0F, 2.0F, 3.0F}, row});
      const Routed found = routed(logits, {2, 4, 3}, kind);
      CHECK(found.chosen == Numbers{0, 3, 2, 0, 1, 2});
      CHECK(std::all_of(found.weights.begin(), found.weights.begin() + 3,
                        [](float w) { return w > 0.0F; }));
      CHECK(std::all_of(found.weights.begin() + 3, found.weights.end(),
                        [](float w) { return std::isnan(w); }));
    }
  }
}

TEST_CASE("router: a gate that is NaN passes on NaN", "[kernels][router]") {
  const Routed found = routed({nan, 1.0F, infinity, -infinity}, {4, 1, 1}, RouterKind::sigmoid);
  CHECK(found.chosen == Numbers(4, 0));
  CHECK(std::isnan(found.weights[0]));
  CHECK(found.weights[2] == 1.0F);
  CHECK(found.weights[3] == 0.0F);
  CHECK(routed({nan, 1.0F, 2.0F}, {1, 3, 2}, RouterKind::sigmoid).chosen == Numbers{2, 1});
}

TEST_CASE("router: an expert that is masked out comes last, with weight 0", "[kernels][router]") {
  const Routed found = routed({-infinity, 1.0F, 2.0F}, {1, 3, 3}, RouterKind::softmax);
  CHECK(found.chosen == Numbers{2, 1, 0});
  CHECK(found.weights[2] == 0.0F);
}

/// Gradient of the weights alone, or with factors of balancing: rows in turn of the groups 0, 1 and
/// none.
struct Backward {
  ExpertSizes sizes;
  RouterKind kind = RouterKind::softmax;
  bool balanced = false;
  float scale = 1.0F;

  [[nodiscard]] Values logits() const { return logits_of(sizes); }
  [[nodiscard]] Numbers chosen() const { return routed(logits(), sizes, kind).chosen; }
  [[nodiscard]] Values dweights() const { return random_values(sizes.places(), 12); }
  [[nodiscard]] Values factors() const { return random_values(2 * sizes.experts, 13); }
  [[nodiscard]] std::int32_t group(std::int64_t row) const {
    return static_cast<std::int32_t>(row % 3 - 1);
  }
  static constexpr float z_factor = 0.05F;

  [[nodiscard]] Values gradient(int threads) const {
    const Values x = logits();
    const Routed forward = routed(x, {.kind = kind,
                                      .rows = sizes.rows,
                                      .experts = sizes.experts,
                                      .slots = sizes.slots,
                                      .scale = scale});
    const Values of_weights = dweights();
    const Values of_balance = factors();
    Numbers groups;
    for (std::int64_t row = 0; row < sizes.rows; ++row) {
      groups.push_back(group(row));
    }
    Values dlogits = untouched_values(std::ssize(x));
    run(
        [&](Stream& stream) {
          cpu::router_backward(stream, {.kind = kind,
                                        .logits = x.data(),
                                        .chosen = forward.chosen.data(),
                                        .weights = forward.weights.data(),
                                        .dweights = of_weights.data(),
                                        .dlogits = dlogits.data(),
                                        .rows = sizes.rows,
                                        .experts = sizes.experts,
                                        .slots = sizes.slots,
                                        .groups = groups.data(),
                                        .factors = balanced ? of_balance.data() : nullptr,
                                        .z_factor = balanced ? &z_factor : nullptr,
                                        .scale = scale});
        },
        threads);
    return dlogits;
  }

  /// The gradient of all rows: of each in turn, by differences of its part in the loss.
  [[nodiscard]] Exact expected() const {
    const Exact all = exact(logits());
    const Numbers choices = chosen();
    const Values of_weights = dweights();
    const Values of_balance = factors();
    Exact gradient;
    for (std::int64_t row = 0; row < sizes.rows; ++row) {
      const auto part = [row](const auto& of_rows, std::int64_t size) {
        const auto begin = of_rows.begin() + row * size;
        return std::decay_t<decltype(of_rows)>(begin, begin + size);
      };
      const Numbers own = part(choices, sizes.slots);
      const Values g = part(of_weights, sizes.slots);
      const float* of_group =
          balanced && group(row) >= 0 ? of_balance.data() + group(row) * sizes.experts : nullptr;
      const Exact of_row = finite_differences(
          part(all, sizes.experts), [&](const Exact& x) { return loss(x, own, g, of_group); });
      gradient.insert(gradient.end(), of_row.begin(), of_row.end());
    }
    return gradient;
  }

 private:
  /// Part of a row with logits x in the loss. `of_group`: factors of its group, nullptr where it is
  /// not balanced.
  [[nodiscard]] double loss(const Exact& x, const Numbers& choices, const Values& g,
                            const float* of_group) const {
    const ExpertSizes one{.rows = 1, .experts = sizes.experts, .slots = sizes.slots};
    double sum = dot(exact_weights(x, choices, one, kind, static_cast<double>(scale)), g);
    if (of_group == nullptr) {
      return sum;
    }
    const Exact shares = exact_shares(x, 0, sizes.experts, kind);
    for (std::int64_t e = 0; e < sizes.experts; ++e) {
      sum += shares[at(e)] * static_cast<double>(of_group[e]);
    }
    const double lse = exact_row(x, 0, sizes.experts).lse;
    return sum + static_cast<double>(z_factor) * lse * lse;
  }
};

TEST_CASE("router: backward is the gradient of the weights and of balancing", "[kernels][router]") {
  for (const ExpertSizes& sizes : kExpertSizes) {
    for (const RouterKind kind : kRouterKinds) {
      for (const bool balanced : {false, true}) {
        const Backward t{
            .sizes = sizes, .kind = kind, .balanced = balanced, .scale = balanced ? 2.5F : 1.0F};
        require_near(t.gradient(2), t.expected(), 2e-6,
                     sizes.name() + (balanced ? ", balanced" : ""));
      }
    }
  }
}

TEST_CASE("router: an expert that was not chosen has no gradient where weights are normalised",
          "[kernels][router]") {
  for (const RouterKind kind : {RouterKind::softmax_normalised, RouterKind::sigmoid_normalised}) {
    const Backward t{.sizes = {3, 8, 2}, .kind = kind};
    const Values gradient = t.gradient(1);
    CHECK(std::count(gradient.begin(), gradient.end(), 0.0F) == 3 * (8 - 2));
  }
}

/// scale (s_j / Z) (1 - s_j) (g_j - sum of g_i s_i / Z) of a row of equal logits, all chosen.
Exact gradient_of_equal(double logit, const Values& g, double scale) {
  const double s = exact_sigmoid(logit);
  const double share = s / (static_cast<double>(g.size()) * s + 1e-20);
  double mean = 0.0;
  for (const float each : g) {
    mean += share * static_cast<double>(each);
  }
  Exact gradient;
  for (const float each : g) {
    gradient.push_back(scale * share * exact_sigmoid(-logit) * (static_cast<double>(each) - mean));
  }
  return gradient;
}

TEST_CASE("router: the gradient of normalised sigmoids keeps its digits at either end",
          "[kernels][router]") {
  constexpr float scale = 2.5F;
  const Values dweights{0.5F, -2.0F, 1.25F, 3.0F};
  for (const double logit : {-100.0, -80.0, -60.0, -46.0, -30.0, 0.0, 17.0, 40.0, 80.0}) {
    CAPTURE(logit);
    const Values logits(4, static_cast<float>(logit));
    const RouterForwardParams p{.kind = RouterKind::sigmoid_normalised,
                                .rows = 1,
                                .experts = 4,
                                .slots = 4,
                                .scale = scale};
    const Routed forward = routed(logits, p);
    Values dlogits = untouched_values(4);
    run([&](Stream& stream) {
      cpu::router_backward(stream, {.kind = p.kind,
                                    .logits = logits.data(),
                                    .chosen = forward.chosen.data(),
                                    .weights = forward.weights.data(),
                                    .dweights = dweights.data(),
                                    .dlogits = dlogits.data(),
                                    .rows = 1,
                                    .experts = 4,
                                    .slots = 4,
                                    .scale = scale});
    });
    // exp(-100) is a denormal float of five bits.
    const double digits = logit < -87.0 ? 0.05 : 2e-6;
    const Exact expected = gradient_of_equal(logit, dweights, static_cast<double>(scale));
    for (std::size_t e = 0; e < 4; ++e) {
      CHECK(static_cast<double>(dlogits[e]) == Approx(expected[e]).epsilon(digits).margin(1e-38));
    }
  }
}

TEST_CASE("router: a NaN logit reaches the gradient", "[kernels][router]") {
  for (const RouterKind kind : kRouterKinds) {
    const Values logits{cpu::is_sigmoid(kind) ? nan : 0.0F, nan, nan, nan};
    const Routed forward = routed(logits, {1, 4, 2}, kind);
    const Values dweights{0.5F, 0.25F};
    Values dlogits = zeros(4);
    run([&](Stream& stream) {
      cpu::router_backward(stream, {.kind = kind,
                                    .logits = logits.data(),
                                    .chosen = forward.chosen.data(),
                                    .weights = forward.weights.data(),
                                    .dweights = dweights.data(),
                                    .dlogits = dlogits.data(),
                                    .rows = 1,
                                    .experts = 4,
                                    .slots = 2});
    });
    CHECK(std::isnan(dlogits[0]));
  }
}

TEST_CASE("router: bits depend neither on the threads nor on the other rows",
          "[kernels][router][P1]") {
  const ExpertSizes sizes{.rows = 301, .experts = 37, .slots = 5};
  for (const RouterKind kind : kRouterKinds) {
    const Values logits = logits_of(sizes);
    require_same_bits(
        [&](int threads) {
          const Routed found = routed(logits, sizes, kind, threads);
          return joined({Values(found.chosen.begin(), found.chosen.end()), found.weights});
        },
        "router_forward");
    const Backward t{.sizes = sizes, .kind = kind, .balanced = true, .scale = 1.5F};
    require_same_bits([&](int threads) { return t.gradient(threads); }, "router_backward");
    const Routed all = routed(logits, sizes, kind);
    const auto own = logits.begin() + 200 * sizes.experts;
    const Routed one = routed(Values(own, own + sizes.experts), {1, 37, 5}, kind);
    CHECK(std::equal(one.chosen.begin(), one.chosen.end(), all.chosen.begin() + 200 * 5));
    CHECK(std::equal(one.weights.begin(), one.weights.end(), all.weights.begin() + 200 * 5));
  }
}

TEST_CASE("router: mistakes of the caller are caught before anything runs", "[kernels][router]") {
  const auto stream = make_inline_stream(1);
  const Values logits(4);
  Numbers chosen(8);
  Values weights(8);
  RouterForwardParams p{.logits = logits.data(),
                        .chosen = chosen.data(),
                        .weights = weights.data(),
                        .rows = 1,
                        .experts = 4,
                        .slots = 5};
  CHECK_THROWS_WITH(cpu::router_forward(*stream, p), Catch::Contains("slots=5"));
  p.slots = 4;
  p.weights = nullptr;
  CHECK_THROWS_AS(cpu::router_forward(*stream, p), CheckFailed);
  p.weights = weights.data();
  p.rows = std::int64_t{1} << 29;
  CHECK_THROWS_WITH(cpu::router_forward(*stream, p), Catch::Contains("rows="));
  p.rows = 1;
  p.scale = 0.0F;
  CHECK_THROWS_WITH(cpu::router_forward(*stream, p), Catch::Contains("scale=0"));
  CHECK_THROWS_WITH(cpu::router_backward(*stream, {.logits = logits.data(),
                                                   .chosen = chosen.data(),
                                                   .weights = weights.data(),
                                                   .dweights = weights.data(),
                                                   .dlogits = weights.data(),
                                                   .rows = 1,
                                                   .experts = 1,
                                                   .slots = 1,
                                                   .scale = infinity}),
                    Catch::Contains("scale=inf"));
}

}  // namespace
}  // namespace train::kernels::testing::router_test
