#include "kernels/head/head_loss.hpp"

#include <string>

#include "base/check.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing {
namespace {

struct Case {
  std::int64_t rows, cols, vocab, chunk_rows;
  float loss_scale = 0.5F, z_scale = 0.01F;

  [[nodiscard]] Values x() const { return random_values(rows * cols, 1); }
  [[nodiscard]] Values weight() const { return random_values(vocab * cols, 2); }
  [[nodiscard]] std::vector<std::int32_t> targets() const {
    std::mt19937 generator(3);
    std::vector<std::int32_t> targets(at(rows));
    for (std::int32_t& target : targets) {  // -1 now and then.
      target = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocab + 1)) - 1;
    }
    return targets;
  }
  [[nodiscard]] std::string name() const {
    return "head_loss " + std::to_string(rows) + " x " + std::to_string(cols) + " -> " +
           std::to_string(vocab) + " by " + std::to_string(chunk_rows);
  }
};

struct Results {
  LossSums sums;
  Values dx, dweight;
};

Results compute(const Case& t, bool gradient, int threads) {
  Results r{.sums = {.cross_entropy = -1.0},
            .dx = untouched_values(t.rows * t.cols),
            .dweight = untouched_values(t.vocab * t.cols)};
  const Values x = t.x();
  const Values weight = t.weight();
  const auto targets = t.targets();
  Values logits = zeros(t.chunk_rows * t.vocab);
  Exact row_terms(at(t.rows * 4));
  run(
      [&](Stream& stream) {
        cpu::head_loss(stream, {.x = x.data(),
                                .weight = weight.data(),
                                .targets = targets.data(),
                                .sums = &r.sums,
                                .dx = gradient ? r.dx.data() : nullptr,
                                .dweight = gradient ? r.dweight.data() : nullptr,
                                .logits = logits.data(),
                                .row_terms = row_terms.data(),
                                .rows = t.rows,
                                .cols = t.cols,
                                .vocab = t.vocab,
                                .chunk_rows = t.chunk_rows,
                                .loss_scale = t.loss_scale,
                                .z_scale = t.z_scale});
      },
      threads);
  return r;
}

/// Sums in double; with gradients if asked for (dx and dweight not null).
LossSums reference(const Case& t, const Exact& x, const Exact& weight, Exact* dx, Exact* dweight) {
  LossSums sums;
  const auto targets = t.targets();
  for (std::int64_t row = 0; row < t.rows; ++row) {
    Exact p(at(t.vocab));
    for (std::int64_t v = 0; v < t.vocab; ++v) {
      for (std::int64_t c = 0; c < t.cols; ++c) {
        p[at(v)] += x[at(row * t.cols + c)] * weight[at(v * t.cols + c)];
      }
    }
    const auto largest = std::max_element(p.begin(), p.end());
    const std::int64_t target = targets[at(row)];
    double sum = 0.0;
    for (const double logit : p) {
      sum += std::exp(logit - *largest);
    }
    const double lse = *largest + std::log(sum);
    sums.z_squared += lse * lse;
    if (target >= 0) {
      sums.cross_entropy += lse - p[at(target)];
      sums.correct += largest - p.begin() == target ? 1.0 : 0.0;
      sums.targets += 1.0;
    }
    for (std::int64_t v = 0; dx != nullptr && v < t.vocab; ++v) {
      const double scale = target >= 0 ? static_cast<double>(t.loss_scale) : 0.0;
      const double g =
          std::exp(p[at(v)] - lse) * (scale + 2.0 * static_cast<double>(t.z_scale) * lse) -
          (v == target ? scale : 0.0);
      for (std::int64_t c = 0; c < t.cols; ++c) {
        (*dx)[at(row * t.cols + c)] += g * weight[at(v * t.cols + c)];
        (*dweight)[at(v * t.cols + c)] += g * x[at(row * t.cols + c)];
      }
    }
  }
  return sums;
}

double loss_of(const Case& t, const LossSums& sums) {
  return static_cast<double>(t.loss_scale) * sums.cross_entropy +
         static_cast<double>(t.z_scale) * sums.z_squared;
}

constexpr Case cases[] = {
    {.rows = 1, .cols = 1, .vocab = 1, .chunk_rows = 1},
    {.rows = 5, .cols = 7, .vocab = 11, .chunk_rows = 2},
    {.rows = 64, .cols = 64, .vocab = 257, .chunk_rows = 64},
    {.rows = 130, .cols = 33, .vocab = 320, .chunk_rows = 48, .z_scale = 0.0F},
    {.rows = 12, .cols = 16, .vocab = 9001, .chunk_rows = 100}};

TEST_CASE("head_loss: sums and gradients agree with a double reference", "[kernels][head_loss]") {
  for (const Case& t : cases) {
    Exact dx(at(t.rows * t.cols));
    Exact dweight(at(t.vocab * t.cols));
    const LossSums sums = reference(t, exact(t.x()), exact(t.weight()), &dx, &dweight);
    const Results r = compute(t, true, 2);
    INFO(t.name());
    // Float logits of size up to 5: an error of 1e-6 in each row's terms.
    REQUIRE(r.sums.cross_entropy == Approx(sums.cross_entropy).epsilon(2e-6).margin(1e-6));
    REQUIRE(r.sums.z_squared == Approx(sums.z_squared).epsilon(2e-6).margin(1e-6));
    REQUIRE(r.sums.correct == sums.correct);
    REQUIRE(r.sums.targets == sums.targets);
    require_near(r.dx, dx, 5e-6, t.name() + " dx");
    require_near(r.dweight, dweight, 5e-6, t.name() + " dweight");
  }
}

TEST_CASE("head_loss: the gradients are those of the loss (finite differences)",
          "[kernels][head_loss]") {
  const Case t{
      .rows = 5, .cols = 4, .vocab = 6, .chunk_rows = 3, .loss_scale = 0.7F, .z_scale = 0.05F};
  const Results r = compute(t, true, 2);
  const Exact dx = finite_differences(exact(t.x()), [&](const Exact& x) {
    return loss_of(t, reference(t, x, exact(t.weight()), nullptr, nullptr));
  });
  const Exact dweight = finite_differences(exact(t.weight()), [&](const Exact& weight) {
    return loss_of(t, reference(t, exact(t.x()), weight, nullptr, nullptr));
  });
  require_near(r.dx, dx, 1e-6, "dx");
  require_near(r.dweight, dweight, 1e-6, "dweight");
}

TEST_CASE("head_loss: the bits depend neither on the threads nor on asking for gradients",
          "[kernels][head_loss]") {
  for (const Case& t : cases) {
    const auto sums_as_values = [](const LossSums& sums) {
      Values values(sizeof(LossSums) / sizeof(float));
      std::memcpy(values.data(), &sums, sizeof(LossSums));
      return values;
    };
    require_same_bits(
        [&](int threads) {
          const Results r = compute(t, true, threads);
          return joined({sums_as_values(r.sums), r.dx, r.dweight});
        },
        t.name());
    const Results without = compute(t, false, 2);
    REQUIRE(sums_as_values(without.sums) == sums_as_values(compute(t, true, 2).sums));
    REQUIRE(without.dx == untouched_values(t.rows * t.cols));
    REQUIRE(without.dweight == untouched_values(t.vocab * t.cols));
  }
}

/// Rows of one feature, so that the logits of row r are x[r] * weight.
LossSums sums_of(const Values& x, const Values& weight, const std::vector<std::int32_t>& targets) {
  LossSums sums;
  Values logits(weight.size());
  Exact row_terms(x.size() * 4);
  run([&](Stream& stream) {
    cpu::head_loss(stream, {.x = x.data(),
                            .weight = weight.data(),
                            .targets = targets.data(),
                            .sums = &sums,
                            .logits = logits.data(),
                            .row_terms = row_terms.data(),
                            .rows = std::ssize(x),
                            .cols = 1,
                            .vocab = std::ssize(weight),
                            .chunk_rows = 1});
  });
  return sums;
}

TEST_CASE("head_loss: of equal logits the first one counts as the answer", "[kernels][head_loss]") {
  const Values weight = {1.0F, 2.0F, 2.0F, -1.0F};
  REQUIRE(sums_of({1.0F}, weight, {1}).correct == 1.0);
  REQUIRE(sums_of({1.0F}, weight, {2}).correct == 0.0);
  REQUIRE(sums_of({0.0F}, weight, {0}).correct == 1.0);
  REQUIRE(sums_of({0.0F}, weight, {1}).correct == 0.0);
}

TEST_CASE("head_loss: large logits do not overflow, NaN and Inf are not lost",
          "[kernels][head_loss]") {
  const Values weight = {1.0F, 2.0F, -2.0F};
  REQUIRE(sums_of({1000.0F}, weight, {0}).cross_entropy == Approx(1000.0));
  REQUIRE(std::isnan(sums_of({std::nanf("")}, weight, {0}).cross_entropy));
  REQUIRE_FALSE(std::isfinite(sums_of({1.0F, INFINITY}, weight, {0, 0}).cross_entropy));
}

TEST_CASE("head_loss: a target outside the vocabulary fails the stream and is named",
          "[kernels][head_loss]") {
  const Values weight = {1.0F, 2.0F};
  for (const std::int32_t bad : {-2, 2}) {
    REQUIRE_THROWS_AS(sums_of({1.0F, 1.0F}, weight, {0, bad}), CheckFailed);
    REQUIRE_THROWS_WITH(sums_of({1.0F, 1.0F}, weight, {0, bad}),
                        Catch::Contains("target " + std::to_string(bad) + " of row 1"));
  }
}

}  // namespace
}  // namespace train::kernels::testing
