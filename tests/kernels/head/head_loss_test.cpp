#include "kernels/head/head_loss.hpp"

#include <numeric>
#include <string>

#include "base/check.hpp"
#include "tests/kernels/head_call.hpp"

namespace train::kernels::testing::head_loss_test {
namespace {

struct Case {
  std::int64_t rows, cols, vocab, chunk_rows;
  float loss_scale = 0.5F, z_scale = 0.01F;
  bool weighted = false;
  float label_smoothing = 0.0F, logit_scale = 1.0F, softcap = 0.0F;

  [[nodiscard]] Values x() const { return random_values(rows * cols, 1); }
  [[nodiscard]] Values weight() const { return random_values(vocab * cols, 2); }
  [[nodiscard]] std::vector<std::int32_t> targets() const { return drawn_targets(rows, vocab); }
  /// Of either sign, and 0 every fourth; empty: none.
  [[nodiscard]] Values row_weights() const {
    Values weights = random_values(weighted ? rows : 0, 4, 2.0F);
    for (std::size_t i = 1; i < weights.size(); i += 4) {
      weights[i] = 0.0F;
    }
    return weights;
  }
  [[nodiscard]] std::string name() const {
    return "head_loss " + std::to_string(rows) + " x " + std::to_string(cols) + " -> " +
           std::to_string(vocab) + " by " + std::to_string(chunk_rows) +
           (weighted ? " weighted" : "") + " smoothing " + std::to_string(label_smoothing) +
           " scale " + std::to_string(logit_scale) + " cap " + std::to_string(softcap);
  }
};

HeadLossCall compute(const Case& t, bool gradients, int threads) {
  HeadLossCall call{.x = t.x(),
                    .weight = t.weight(),
                    .targets = t.targets(),
                    .cols = t.cols,
                    .chunk_rows = t.chunk_rows,
                    .row_weights = t.row_weights(),
                    .gradients = gradients,
                    .options = {.loss_scale = t.loss_scale,
                                .z_scale = t.z_scale,
                                .label_smoothing = t.label_smoothing,
                                .logit_scale = t.logit_scale,
                                .softcap = t.softcap}};
  call.run(threads);
  return call;
}

/// Sums in double; with gradients if asked for (dx and dweight not null).
LossSums reference(const Case& t, const Exact& x, const Exact& weight, Exact* dx, Exact* dweight) {
  LossSums sums;
  const auto targets = t.targets();
  const Values row_weights = t.row_weights();
  const auto smoothing = static_cast<double>(t.label_smoothing);
  for (std::int64_t row = 0; row < t.rows; ++row) {
    const std::int64_t target = targets[at(row)];
    if (target < 0) {
      continue;
    }
    const double row_weight = t.weighted ? static_cast<double>(row_weights[at(row)]) : 1.0;
    const std::vector<Shaped> logits = logits_of(t, x, weight, row);
    const Exact values = values_of(logits);
    const double largest = *std::max_element(values.begin(), values.end());
    const double mean =
        std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(t.vocab);
    const double lse = log_sum_exp(values);
    const double chosen = logits[at(target)].z;
    sums.cross_entropy += row_weight * (lse - (1.0 - smoothing) * chosen - smoothing * mean);
    sums.z_squared += lse * lse;
    sums.correct += chosen == largest ? 1.0 : 0.0;
    sums.targets += 1.0;
    sums.weights += row_weight;
    const double scale = static_cast<double>(t.loss_scale) * row_weight;
    for (std::int64_t v = 0; dx != nullptr && v < t.vocab; ++v) {
      const double p = std::exp(logits[at(v)].z - lse);
      const double g = p * (scale + 2.0 * static_cast<double>(t.z_scale) * lse) -
                       scale * ((v == target ? 1.0 - smoothing : 0.0) +
                                smoothing / static_cast<double>(t.vocab));
      for (std::int64_t c = 0; c < t.cols; ++c) {
        (*dx)[at(row * t.cols + c)] += g * logits[at(v)].slope * weight[at(v * t.cols + c)];
        (*dweight)[at(v * t.cols + c)] += g * logits[at(v)].slope * x[at(row * t.cols + c)];
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
    {.rows = 0, .cols = 3, .vocab = 7, .chunk_rows = 4},
    {.rows = 1, .cols = 1, .vocab = 1, .chunk_rows = 1},
    {.rows = 5, .cols = 7, .vocab = 11, .chunk_rows = 2},
    {.rows = 64, .cols = 64, .vocab = 257, .chunk_rows = 64},
    {.rows = 130, .cols = 33, .vocab = 320, .chunk_rows = 48, .z_scale = 0.0F},
    {.rows = 12, .cols = 16, .vocab = 9001, .chunk_rows = 100},
    {.rows = 65,
     .cols = 5,
     .vocab = 1,
     .chunk_rows = 64,
     .weighted = true,
     .label_smoothing = 0.1F},
    {.rows = 65, .cols = 9, .vocab = 7, .chunk_rows = 8, .weighted = true},
    {.rows = 65, .cols = 9, .vocab = 1000, .chunk_rows = 65, .label_smoothing = 0.1F},
    {.rows = 65, .cols = 9, .vocab = 1000, .chunk_rows = 7, .logit_scale = 0.25F},
    {.rows = 65, .cols = 9, .vocab = 1000, .chunk_rows = 16, .softcap = 2.0F},
    {.rows = 65,
     .cols = 9,
     .vocab = 1000,
     .chunk_rows = 1,
     .weighted = true,
     .label_smoothing = 0.3F,
     .logit_scale = 1.5F,
     .softcap = 3.0F}};

TEST_CASE("head_loss: sums and gradients agree with a double reference", "[kernels][head_loss]") {
  for (const Case& t : cases) {
    Exact dx(at(t.rows * t.cols));
    Exact dweight(at(t.vocab * t.cols));
    const LossSums sums = reference(t, exact(t.x()), exact(t.weight()), &dx, &dweight);
    const HeadLossCall r = compute(t, true, 2);
    INFO(t.name());
    // Float logits of size up to 5: an error of 1e-6 in each row's terms, which weights of either
    // sign do not make smaller.
    const double margin = 1e-6 + (t.weighted ? 1e-6 * static_cast<double>(t.rows) : 0.0);
    REQUIRE(r.sums.cross_entropy == Approx(sums.cross_entropy).epsilon(2e-6).margin(margin));
    REQUIRE(r.sums.z_squared == Approx(sums.z_squared).epsilon(2e-6).margin(1e-6));
    REQUIRE(r.sums.correct == sums.correct);
    REQUIRE(r.sums.targets == sums.targets);
    REQUIRE(r.sums.weights == Approx(sums.weights).margin(1e-12));
    require_near(r.dx, dx, 5e-6, t.name() + " dx");
    require_near(r.dweight, dweight, 5e-6, t.name() + " dweight");
  }
}

TEST_CASE("head_loss: the gradients are those of the loss (finite differences)",
          "[kernels][head_loss]") {
  constexpr Case plain{
      .rows = 5, .cols = 4, .vocab = 6, .chunk_rows = 3, .loss_scale = 0.7F, .z_scale = 0.05F};
  Case weighted = plain;
  weighted.weighted = true;
  Case smoothed = plain;
  smoothed.label_smoothing = 0.2F;
  Case all = weighted;
  all.label_smoothing = 0.2F;
  all.logit_scale = 1.25F;
  all.softcap = 1.5F;
  for (const Case& t : {plain, weighted, smoothed, all}) {
    const HeadLossCall r = compute(t, true, 2);
    const Exact dx = finite_differences(exact(t.x()), [&](const Exact& x) {
      return loss_of(t, reference(t, x, exact(t.weight()), nullptr, nullptr));
    });
    const Exact dweight = finite_differences(exact(t.weight()), [&](const Exact& weight) {
      return loss_of(t, reference(t, exact(t.x()), weight, nullptr, nullptr));
    });
    require_near(r.dx, dx, 1e-6, t.name() + " dx");
    require_near(r.dweight, dweight, 1e-6, t.name() + " dweight");
  }
}

TEST_CASE("head_loss: weights of 1 have the bits of none, and scale the loss of their rows alone",
          "[kernels][head_loss]") {
  const Case t{.rows = 9, .cols = 7, .vocab = 50, .chunk_rows = 4, .z_scale = 0.0F};
  const auto weighted = [&](const Values& row_weights, const std::vector<std::int32_t>& targets) {
    HeadLossCall call{.x = t.x(),
                      .weight = t.weight(),
                      .targets = targets,
                      .cols = t.cols,
                      .chunk_rows = t.chunk_rows,
                      .row_weights = row_weights};
    call.run();
    return call;
  };
  const std::vector<std::int32_t> targets = {3, 0, 49, 7, 7, 20, 31, 1, 8};
  const HeadLossCall plain = weighted({}, targets);
  const Values ones(at(t.rows), 1.0F);
  const HeadLossCall of_ones = weighted(ones, targets);
  REQUIRE(of_ones.dx == plain.dx);
  REQUIRE(of_ones.dweight == plain.dweight);
  REQUIRE(of_ones.sums.cross_entropy == plain.sums.cross_entropy);
  REQUIRE(of_ones.sums.weights == plain.sums.weights);
  // Powers of two scale without rounding; the sign is that of the weight.
  const Values weights = {1.0F, 0.0F, -2.0F, 0.5F, 1.0F, 0.0F, 4.0F, -1.0F, 1.0F};
  const HeadLossCall scaled = weighted(weights, targets);
  for (std::size_t i = 0; i < plain.dx.size(); ++i) {
    INFO(i);
    REQUIRE(scaled.dx[i] == weights[i / at(t.cols)] * plain.dx[i]);
  }
  REQUIRE(scaled.sums.targets == 9.0);
  REQUIRE(scaled.sums.weights == 4.5);
  // A row of weight 0 gives what a row without a target gives.
  std::vector<std::int32_t> without = targets;
  without[1] = -1;
  without[5] = -1;
  const HeadLossCall left_out = weighted(weights, without);
  REQUIRE(left_out.dx == scaled.dx);
  REQUIRE(left_out.dweight == scaled.dweight);
  REQUIRE(left_out.sums.cross_entropy == scaled.sums.cross_entropy);
  REQUIRE(left_out.sums.targets == 7.0);
}

TEST_CASE("head_loss: a row without a target counts nowhere, whatever its logits are",
          "[kernels][head_loss]") {
  HeadLossCall call{.x = {1e30F, 0.5F},
                    .weight = {1.0F, 2.0F},
                    .targets = {-1, 1},
                    .chunk_rows = 2,
                    .options = {.z_scale = 0.5F}};
  call.run();
  const double lse = 1.0 + std::log1p(std::exp(-0.5));
  REQUIRE(call.sums.z_squared == Approx(lse * lse).epsilon(1e-6));
  REQUIRE(call.sums.targets == 1.0);
  REQUIRE(call.dx[0] == 0.0F);
  REQUIRE(call.dx[1] != 0.0F);
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
          const HeadLossCall r = compute(t, true, threads);
          return joined({sums_as_values(r.sums), r.dx, r.dweight});
        },
        t.name());
    const HeadLossCall without = compute(t, false, 2);
    REQUIRE(sums_as_values(without.sums) == sums_as_values(compute(t, true, 2).sums));
    REQUIRE(without.dx == untouched_values(t.rows * t.cols));
    REQUIRE(without.dweight == untouched_values(t.vocab * t.cols));
  }
}

/// Rows of one feature, so that the logits of row r are x[r] * weight.
LossSums sums_of(const Values& x, const Values& weight, const std::vector<std::int32_t>& targets) {
  HeadLossCall call{.x = x, .weight = weight, .targets = targets, .gradients = false};
  call.run();
  return call.sums;
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

TEST_CASE("head_loss: a wrong call is refused", "[kernels][head_loss]") {
  LossSums sums;
  const HeadLossParams valid{.sums = &sums, .cols = 1, .vocab = 1, .chunk_rows = 1};
  REQUIRE_NOTHROW(check_params(valid));
  for (const auto& spoil : std::initializer_list<void (*)(HeadLossParams&)>{
           [](HeadLossParams& p) { p.logit_scale = 0.0F; },
           [](HeadLossParams& p) { p.softcap = -1.0F; },
           [](HeadLossParams& p) { p.label_smoothing = 1.5F; },
           [](HeadLossParams& p) { p.label_smoothing = -0.1F; }}) {
    HeadLossParams wrong = valid;
    spoil(wrong);
    REQUIRE_THROWS_AS(check_params(wrong), CheckFailed);
  }
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
}  // namespace train::kernels::testing::head_loss_test
