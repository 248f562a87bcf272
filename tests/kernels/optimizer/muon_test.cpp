#include "kernels/optimizer/muon.hpp"
#include "kernels/optimizer/update_guard.hpp"

#include <algorithm>
#include <bit>

#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::muon_test {
namespace {

constexpr std::int64_t kCount = 40'003;

/// By the definition: the nearer of the two neighbours, the even one where both are as near.
float nearest_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto below = std::bit_cast<float>(bits & 0xffff0000U);
  const auto above = std::bit_cast<float>((bits & 0xffff0000U) + 0x10000U);
  const double to_below = std::abs(static_cast<double>(value) - static_cast<double>(below));
  const double to_above = std::abs(static_cast<double>(above) - static_cast<double>(value));
  const bool below_is_even = (bits & 0x10000U) == 0;
  return to_below < to_above || (to_below == to_above && below_is_even) ? below : above;
}

}  // namespace

TEST_CASE("muon: the momentum, and what it is about to be, rounded", "[kernels][muon]") {
  const Values g = random_values(kCount, 1);
  const Values start = random_values(kCount, 2);
  const UpdateGuard guard{.grad_scale = 0.5F};
  for (const bool nesterov : {true, false}) {
    Values m = start;
    Values x = untouched_values(kCount);
    run([&](Stream& stream) {
      cpu::muon_momentum(stream, {.g = g.data(),
                                  .m = m.data(),
                                  .x = x.data(),
                                  .guard = &guard,
                                  .count = kCount,
                                  .momentum_keep = 0.9,
                                  .gradient_add = 0.25,
                                  .next_gradient = 0.5,
                                  .next_momentum = 0.75,
                                  .nesterov = nesterov});
    });
    Exact momentum;
    Exact next;
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double gradient = 0.5 * static_cast<double>(g[i]);
      momentum.push_back(0.9 * static_cast<double>(start[i]) + 0.25 * gradient);
      next.push_back(nesterov ? 0.5 * gradient + 0.75 * momentum.back() : momentum.back());
      REQUIRE((std::bit_cast<std::uint32_t>(x[i]) & 0xffffU) == 0U);
    }
    require_near(m, momentum, 2e-7, "m");
    require_near(x, next, 1.0 / 256.0, "x");
  }
}

TEST_CASE("muon: blends and norms are rounded to the nearest bf16", "[kernels][muon]") {
  const Values x = random_values(kCount, 1);
  const Values y = random_values(kCount, 2);
  Values out = untouched_values(kCount);
  run([&](Stream& stream) {
    cpu::blend_bf16(
        stream, {.x = x.data(), .y = y.data(), .out = out.data(), .count = kCount, .a = 1, .b = 0});
  });
  for (std::size_t i = 0; i < x.size(); ++i) {
    REQUIRE(out[i] == nearest_bf16(x[i]));
  }
  // Halfway between two neighbours: to the even one. 1 + 2^-8 and 1 + 3 * 2^-8.
  const Values halves = {1.00390625F, 1.01171875F, -1.00390625F};
  Values rounded(3);
  run([&](Stream& stream) {
    cpu::blend_bf16(stream, {.x = halves.data(),
                             .y = halves.data(),
                             .out = rounded.data(),
                             .count = 3,
                             .a = 2.0,
                             .b = -1.0});
  });
  REQUIRE(rounded == Values{1.0F, 1.015625F, -1.0F});

  const double squared = 9.3;
  const float norm = nearest_bf16(static_cast<float>(std::sqrt(squared)));
  Values normal = x;
  run([&](Stream& stream) {
    cpu::muon_normalise(
        stream, {.x = normal.data(), .squared_norm = &squared, .count = kCount, .least = 1e-7});
  });
  for (std::size_t i = 0; i < x.size(); ++i) {
    REQUIRE(normal[i] == nearest_bf16(x[i] / norm));
  }
}

TEST_CASE("muon: a matrix of zeros stays one, however it is divided", "[kernels][muon]") {
  const double nothing = 0.0;
  for (const bool clamped : {true, false}) {
    Values x = zeros(5);
    run([&](Stream& stream) {
      cpu::muon_normalise(stream, {.x = x.data(),
                                   .squared_norm = &nothing,
                                   .count = 5,
                                   .least = clamped ? 1e-7 : 0.0,
                                   .added = clamped ? 0.0 : 1e-7});
    });
    REQUIRE(x == zeros(5));
  }
}

TEST_CASE("muon: a non-finite gate changes neither weights nor momentum", "[kernels][muon]") {
  const Values nan(9, std::nanf(""));
  Values p = random_values(9, 1);
  Values m = random_values(9, 2);
  const Values p_before = p;
  const Values m_before = m;
  Values x = zeros(9);
  const UpdateGuard guard{.nonfinite = 1};
  run([&](Stream& stream) {
    cpu::muon_momentum(
        stream, {.g = nan.data(), .m = m.data(), .x = x.data(), .guard = &guard, .count = 9});
    cpu::muon_apply(
        stream, {.p = p.data(), .x = nan.data(), .guard = &guard, .count = 9, .step_size = 1.0});
  });
  REQUIRE(p == p_before);
  REQUIRE(m == m_before);
}

TEST_CASE("muon: bits do not depend on the threads", "[kernels][muon]") {
  const Values g = random_values(kCount, 3);
  const UpdateGuard guard{.grad_scale = 0.3F};
  const double squared = 12.5;
  require_same_bits(
      [&](int threads) {
        Values p = random_values(kCount, 1);
        Values m = random_values(kCount, 2);
        Values x = zeros(kCount);
        run(
            [&](Stream& stream) {
              cpu::muon_momentum(
                  stream,
                  {.g = g.data(), .m = m.data(), .x = x.data(), .guard = &guard, .count = kCount});
              cpu::muon_normalise(stream,
                                  {.x = x.data(), .squared_norm = &squared, .count = kCount});
              cpu::muon_apply(stream, {.p = p.data(),
                                       .x = x.data(),
                                       .guard = &guard,
                                       .count = kCount,
                                       .decay = 1e-3,
                                       .step_size = 0.1});
            },
            threads);
        p.insert(p.end(), m.begin(), m.end());
        p.insert(p.end(), x.begin(), x.end());
        return p;
      },
      "muon");
}

}  // namespace train::kernels::testing::muon_test
