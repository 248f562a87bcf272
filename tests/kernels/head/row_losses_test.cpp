// Losses of head_loss that are no cross-entropy (RowLoss): against definitions in double and their
// finite differences. tests/engine/objective/sequential_unlearning_test.cpp compares whole steps
// with torch.

#include <algorithm>
#include <functional>

#include "base/check.hpp"
#include "kernels/head/head_loss.hpp"
#include "tests/kernels/head_call.hpp"

namespace train::kernels::testing::row_losses_test {
namespace {

struct Case {
  RowLoss loss = RowLoss::divergence;
  std::int64_t rows = 0, cols = 0, vocab = 0, chunk_rows = 1, top_k = 0;
  bool weighted = false;
  float logit_scale = 1.0F, softcap = 0.0F;

  [[nodiscard]] Values x() const { return random_values(rows * cols, 1); }
  [[nodiscard]] Values reference() const { return random_values(rows * cols, 5); }
  [[nodiscard]] Values weight() const { return random_values(vocab * cols, 2); }
  [[nodiscard]] std::vector<std::int32_t> targets() const {
    std::vector<std::int32_t> targets(at(rows));
    for (std::int64_t row = 0; row < rows; ++row) {
      targets[at(row)] = row % 3 == 1 ? -1 : static_cast<std::int32_t>(row * 7 % vocab);
    }
    return targets;
  }
  [[nodiscard]] Values row_weights() const { return random_values(weighted ? rows : 0, 4, 2.0F); }
};

constexpr float kLossScale = 0.5F;

HeadLossCall compute(const Case& t, const Values& reference, int threads = 2,
                     bool gradients = true) {
  HeadLossCall call{.x = t.x(),
                    .weight = t.weight(),
                    .targets = t.targets(),
                    .cols = t.cols,
                    .chunk_rows = t.chunk_rows,
                    .row_weights = t.row_weights(),
                    .reference_x = reference,
                    .gradients = gradients,
                    .options = {.loss_scale = kLossScale,
                                .logit_scale = t.logit_scale,
                                .softcap = t.softcap,
                                .row_loss = t.loss,
                                .top_k = t.top_k}};
  call.run(threads);
  return call;
}

double loss_of_row(const Case& t, const Exact& x, std::int64_t row) {
  const Exact weight = exact(t.weight());
  Exact logits = values_of(logits_of(t, x, weight, row));
  if (t.loss == RowLoss::divergence) {
    const Exact reference = values_of(logits_of(t, exact(t.reference()), weight, row));
    double sum = 0.0;
    for (std::size_t v = 0; v < logits.size(); ++v) {
      const double log_p0 = reference[v] - log_sum_exp(reference);
      sum += std::exp(log_p0) * (log_p0 - (logits[v] - log_sum_exp(logits)));
    }
    return sum;
  }
  std::sort(logits.begin(), logits.end(), std::greater<>());
  logits.resize(at(std::min(t.top_k, t.vocab)));
  double mean = 0.0;
  for (const double logit : logits) {
    mean += logit / static_cast<double>(logits.size());
  }
  return log_sum_exp(logits) - mean;
}

double loss_of(const Case& t, const Exact& x) {
  const auto targets = t.targets();
  const Values weights = t.row_weights();
  double sum = 0.0;
  for (std::int64_t row = 0; row < t.rows; ++row) {
    if (targets[at(row)] >= 0) {
      sum += (t.weighted ? static_cast<double>(weights[at(row)]) : 1.0) * loss_of_row(t, x, row);
    }
  }
  return sum;
}

constexpr Case cases[] = {
    {.rows = 5, .cols = 4, .vocab = 6, .chunk_rows = 2},
    {.rows = 4, .cols = 3, .vocab = 300, .chunk_rows = 16, .weighted = true},
    {.rows = 7, .cols = 4, .vocab = 41, .chunk_rows = 3, .logit_scale = 1.5F, .softcap = 2.0F},
    {.loss = RowLoss::top_entropy, .rows = 5, .cols = 4, .vocab = 9, .chunk_rows = 2, .top_k = 3},
    {.loss = RowLoss::top_entropy,
     .rows = 4,
     .cols = 3,
     .vocab = 2300,
     .chunk_rows = 16,
     .top_k = 100,
     .weighted = true},
    {.loss = RowLoss::top_entropy,
     .rows = 7,
     .cols = 4,
     .vocab = 41,
     .chunk_rows = 3,
     .top_k = 60,
     .logit_scale = 1.5F,
     .softcap = 2.0F}};

}  // namespace

TEST_CASE("row losses: sums and gradients agree with definitions in double (finite differences)",
          "[kernels][head_loss]") {
  for (const Case& t : cases) {
    INFO(t.rows << " rows of " << t.vocab << ", " << t.top_k << " of them");
    const HeadLossCall r = compute(t, t.reference());
    CHECK(r.sums.cross_entropy == Approx(loss_of(t, exact(t.x()))).epsilon(2e-6).margin(1e-5));
    const Exact dx = finite_differences(exact(t.x()), [&](const Exact& x) {
      return static_cast<double>(kLossScale) * loss_of(t, x);
    });
    require_near(r.dx, dx, 5e-6, "dx");
    const HeadLossCall alone = compute(t, t.reference(), 1, /*gradient=*/false);
    CHECK(alone.sums.cross_entropy == r.sums.cross_entropy);
    CHECK(compute(t, t.reference(), 1).dx == r.dx);
  }
}

TEST_CASE("row losses: nothing diverges from itself, to the bit", "[kernels][head_loss]") {
  for (const Case& t : cases) {
    if (t.loss == RowLoss::divergence) {
      const HeadLossCall r = compute(t, t.x());
      CHECK(r.sums.cross_entropy == 0.0);
      CHECK(r.dx == zeros(t.rows * t.cols));
    }
  }
}

TEST_CASE("row losses: of equal logits the first are among the largest; the others stay",
          "[kernels][head_loss]") {
  // One feature, and a weight for each token: the gradient of x says which tokens have one.
  HeadLossCall call{.x = {1.0F},
                    .weight = {1.0F, 4.0F, 2.0F, 2.0F, 2.0F},
                    .targets = {0},
                    .options = {.row_loss = RowLoss::top_entropy, .top_k = 3}};
  call.run();
  CHECK(call.dweight[0] == 0.0F);
  CHECK(call.dweight[1] > 0.0F);
  CHECK(call.dweight[2] < 0.0F);
  CHECK(call.dweight[3] == call.dweight[2]);
  CHECK(call.dweight[4] == 0.0F);
}

TEST_CASE("row losses: what is not a number is not lost, and a wrong call is refused",
          "[kernels][head_loss]") {
  const Case t = cases[0];
  const Values nan(at(t.rows * t.cols), std::nanf(""));
  CHECK(std::isnan(compute(t, nan).sums.cross_entropy));
  LossSums sums;
  HeadLossParams valid{.sums = &sums, .cols = 1, .vocab = 1, .chunk_rows = 1};
  valid.row_loss = RowLoss::top_entropy;
  valid.top_k = 2;
  REQUIRE_NOTHROW(check_params(valid));
  for (const auto& spoil : std::initializer_list<void (*)(HeadLossParams&)>{
           [](HeadLossParams& p) { p.top_k = 0; }, [](HeadLossParams& p) { p.z_scale = 0.1F; },
           [](HeadLossParams& p) { p.label_smoothing = 0.1F; },
           [](HeadLossParams& p) {
             p.row_loss = RowLoss::divergence;
             p.rows = 1;
           }}) {
    HeadLossParams wrong = valid;
    spoil(wrong);
    REQUIRE_THROWS_AS(check_params(wrong), CheckFailed);
  }
}

}  // namespace train::kernels::testing::row_losses_test
