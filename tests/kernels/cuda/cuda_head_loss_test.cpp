// The CUDA twin of the head's loss: rows that are kept in part, ties, what is not finite.
#include <algorithm>
#include <limits>

#include "kernels/device/stream.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/row_distance.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_head_loss_test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Columns that leave some over of a unit, need 64, 256 and 1024 threads, several tiles of them,
/// and more than a block of the emulated device can keep.
constexpr std::int64_t vocabularies[] = {1, 7, 8, 9, 60, 601, 4104, 4099, 9000, 16388, 70004};

/// Results that a LossSums is; dx and dweight follow.
constexpr std::ptrdiff_t sums_count = 5;

struct HeadCase {
  std::int64_t rows = 5, cols = 8, vocab = 0;
  bool gradient = true;
  std::int64_t first = 0;  ///< Where the logits begin: 1 is not aligned.
  Values x = {}, weight = {};
  std::vector<std::int32_t> targets = {};
  Values row_weights = {};  ///< Empty: none.
  float label_smoothing = 0.0F, logit_scale = 1.0F, softcap = 0.0F;
  RowLoss row_loss = RowLoss::cross_entropy;
  std::int64_t top_k = 0;
  Values reference = {};  ///< divergence.
};

/// Random, with targets over all columns and one row without.
HeadCase random_case(std::int64_t vocab) {
  HeadCase head{.vocab = vocab};
  head.x = random_values(head.rows * head.cols, 1);
  head.weight = random_values(vocab * head.cols, 2, 3.0F);
  const auto last = static_cast<std::int32_t>(vocab - 1);
  head.targets = {last, 0, -1, last / 2, last / 3};
  return head;
}

/// Every row has these logits.
HeadCase case_of_logits(const Values& logits, const std::vector<std::int32_t>& targets) {
  const std::int64_t rows = std::ssize(targets);
  return {.rows = rows,
          .cols = 1,
          .vocab = std::ssize(logits),
          .x = Values(at(rows), 1.0F),
          .weight = logits,
          .targets = targets};
}

void call(Side& side, const HeadCase& head) {
  HeadLossParams params{.rows = head.rows,
                        .cols = head.cols,
                        .vocab = head.vocab,
                        .chunk_rows = 3,
                        .loss_scale = 0.3F,
                        .z_scale = head.row_loss == RowLoss::cross_entropy ? 1e-3F : 0.0F,
                        .label_smoothing = head.label_smoothing,
                        .logit_scale = head.logit_scale,
                        .softcap = head.softcap,
                        .dtype = side.dtype,
                        .row_loss = head.row_loss,
                        .top_k = head.top_k};
  if (head.row_loss == RowLoss::divergence) {
    params.reference_x = side.elements(head.reference);
    params.reference_logits = side.put(zeros(3 * head.vocab));
  }
  params.x = side.elements(head.x);
  params.weight = side.elements(head.weight);
  params.targets = side.put(head.targets);
  params.row_weights = head.row_weights.empty() ? nullptr : side.put(head.row_weights);
  params.sums = side.result(std::vector<LossSums>(1));
  if (head.gradient) {
    params.dx = side.element_result(untouched_values(head.rows * head.cols));
    params.dweight = side.result(untouched_values(head.vocab * head.cols));
  }
  params.logits = side.put(zeros(3 * head.vocab + head.first)) + head.first;
  params.row_terms = side.put(Exact(at(head.rows * 4)));
  side.kernels.head_loss(side.stream(), params);
}

void compare(const std::string& what, const HeadCase& head) {
  const double tolerance = transcendental + sum_of(head.cols + head.rows + 600);
  compare_twins("head_loss", what, tolerance,
                head.gradient ? 2.0 * bf16_rounding + tolerance : tolerance,
                [&](Side& side) { call(side, head); });
}

Exact on_cuda(const HeadCase& head, DType dtype) {
  Side side = cuda_side();
  side.dtype = dtype;
  call(side, head);
  return side.results();
}

TEST_CASE("cuda twins: head loss of every number of columns", "[kernels][cuda][.gpu]") {
  for (const std::int64_t vocab : vocabularies) {
    HeadCase head = random_case(vocab);
    compare(fmt::format("{} columns", vocab), head);
    head.gradient = false;
    compare(fmt::format("{} columns, loss alone", vocab), head);
  }
}

/// Floats of 16 bytes: what a product's operands may begin at a multiple of.
constexpr std::int64_t vector_floats = 4;

TEST_CASE(
    "cuda twins: head loss has the same bits wherever aligned logits lie, with and without "
    "gradients",
    "[kernels][cuda][.gpu][P1]") {
  if (no_device()) {
    return;
  }
  for (const std::int64_t vocab : vocabularies) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      INFO(vocab << " columns");
      HeadCase head = random_case(vocab);
      const Exact all = on_cuda(head, dtype);
      head.first = vector_floats;
      CHECK((on_cuda(head, dtype) == all));  // Of so many that nobody wants to read them.
      head.gradient = false;
      CHECK(on_cuda(head, dtype) == Exact(all.begin(), all.begin() + sums_count));
    }
  }
}

// A product whose operands begin elsewhere may be another algorithm, with another order of sums.
// Here it has none: a row of x is one 1 and zeros, so that a logit is one weight, and a weight's
// gradient one gradient of a logit. What the loss itself computes is seen bit by bit; dx alone is
// a sum.
TEST_CASE("cuda twins: the loss of a row has the same bits where logits are not aligned",
          "[kernels][cuda][.gpu][P1]") {
  if (no_device()) {
    return;
  }
  for (const std::int64_t vocab : vocabularies) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      INFO(vocab << " columns");
      HeadCase head = random_case(vocab);
      head.x = zeros(head.rows * head.cols);
      for (std::int64_t row = 0; row < head.rows; ++row) {
        head.x[at(row * head.cols + row)] = 1.0F;
      }
      const Exact all = on_cuda(head, dtype);
      const auto dx = all.begin() + sums_count;
      const auto dweight = dx + head.rows * head.cols;
      const Exact sums(all.begin(), dx);
      head.first = 1;
      const Exact moved = on_cuda(head, dtype);
      const auto moved_dx = moved.begin() + sums_count;
      const auto moved_dweight = moved_dx + head.rows * head.cols;
      CHECK(Exact(moved.begin(), moved_dx) == sums);
      CHECK(std::equal(moved_dweight, moved.end(), dweight, all.end()));
      CHECK(largest_error(Exact(moved_dx, moved_dweight), Exact(dx, dweight)) <=
            (sum_of(vocab) + (dtype == DType::bf16 ? bf16_rounding : 0.0)) * rounding);
      head.gradient = false;
      CHECK(on_cuda(head, dtype) == sums);
    }
  }
}

TEST_CASE("cuda twins: head losses that are no cross-entropy", "[kernels][cuda][.gpu]") {
  for (const std::int64_t vocab : vocabularies) {
    HeadCase head = random_case(vocab);
    head.row_loss = RowLoss::divergence;
    head.reference = random_values(head.rows * head.cols, 7);
    compare(fmt::format("divergence of {} columns", vocab), head);
    head.row_weights = {1.0F, -0.5F, 1.0F, 0.0F, 2.0F};
    head.softcap = 3.0F;
    head.logit_scale = 1.5F;
    compare(fmt::format("divergence of {} capped columns", vocab), head);
    head.row_loss = RowLoss::top_entropy;
    for (const std::int64_t top : {1, 5, 100}) {
      head.top_k = top;
      compare(fmt::format("entropy of the {} largest of {} columns", top, vocab), head);
    }
  }
}

TEST_CASE("cuda twins: nothing diverges from itself; the first of equal logits are the largest",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    HeadCase same = random_case(4099);
    same.row_loss = RowLoss::divergence;
    same.reference = same.x;
    const Exact results = on_cuda(same, dtype);
    CHECK(results.front() == 0.0);  // The loss, then targets that were right, and gradients.
    CHECK(std::all_of(results.begin() + 5, results.end(), [](double each) { return each == 0.0; }));
  }
  HeadCase equal = case_of_logits({1.0F, 4.0F, 2.0F, 2.0F, 2.0F}, {0});
  equal.row_loss = RowLoss::top_entropy;
  equal.top_k = 3;
  compare("equal logits", equal);
}

TEST_CASE("cuda twins: distances of rows, equal ones and those without a target among them",
          "[kernels][cuda][.gpu]") {
  for (const std::int64_t cols : {1, 15, 64, 1003}) {
    for (const std::int64_t rows : {1, 19, 600}) {
      const bool add = rows > 1;
      compare_twins("row_distance", fmt::format("{} rows of {}", rows, cols), sum_of(rows),
                    bf16_rounding, [&](Side& side) {
                      const Values x = random_values(rows * cols, 1);
                      Values reference = random_values(rows * cols, 2);
                      std::copy_n(x.begin(), rows > 1 ? cols : 0, reference.begin());
                      std::vector<std::int32_t> targets(at(rows), 3);
                      for (std::int64_t row = 1; row < rows; row += 3) {
                        targets[at(row)] = -1;
                      }
                      Exact before(sizeof(LossSums) / sizeof(double), 1.5);
                      double* sums = side.result(before);
                      side.kernels.row_distance(
                          side.stream(),
                          {.x = side.elements(x),
                           .reference = side.element_result(reference),
                           .targets = side.put(targets),
                           .row_weights = add ? side.put(random_values(rows, 4)) : nullptr,
                           .sums = reinterpret_cast<LossSums*>(sums),
                           .row_terms = side.put(Exact(at(rows))),
                           .rows = rows,
                           .cols = cols,
                           .loss_scale = 0.5F,
                           .share = 0.5,
                           .add = add,
                           .dtype = side.dtype});
                    });
    }
  }
}

TEST_CASE("cuda twins: head loss with weights, smoothing, scales and caps",
          "[kernels][cuda][.gpu]") {
  for (const std::int64_t vocab : vocabularies) {
    HeadCase head = random_case(vocab);
    head.row_weights = {0.5F, -1.5F, 2.0F, 0.0F, 1.0F};
    compare(fmt::format("{} columns, weights", vocab), head);
    HeadCase capped = random_case(vocab);
    capped.softcap = 2.0F;
    compare(fmt::format("{} columns, cap", vocab), capped);
    HeadCase smoothed = random_case(vocab);
    smoothed.label_smoothing = 0.1F;
    compare(fmt::format("{} columns, smoothing", vocab), smoothed);
    head.label_smoothing = 0.2F;
    head.logit_scale = 0.75F;
    head.softcap = 3.0F;
    compare(fmt::format("{} columns, all of them", vocab), head);
    head.first = 1;
    head.gradient = false;
    compare(fmt::format("{} columns, all, loss alone", vocab), head);
  }
}

TEST_CASE("cuda twins: head loss leaves out rows without a target, whatever their logits are",
          "[kernels][cuda][.gpu]") {
  for (const std::int64_t vocab : {7, 601}) {
    HeadCase head = random_case(vocab);
    head.targets = {-1, 0, -1, 1, -1};
    for (const std::int64_t row : {0, 2, 4}) {
      std::fill_n(head.x.begin() + row * head.cols, head.cols, 1e30F);
    }
    HeadCase without = head;
    without.gradient = false;
    compare(fmt::format("{} columns, rows left out", vocab), without);
    if (!no_device()) {
      const Exact all = on_cuda(head, DType::f32);
      CHECK(std::isfinite(all[1]));
      CHECK(all[3] == 2.0);
      const auto dx = all.begin() + 5;
      CHECK(std::all_of(dx, dx + head.cols, [](double d) { return d == 0.0; }));
    }
  }
}

TEST_CASE("cuda twins: head loss knows the first of the largest logits", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t vocab = 40000;
  for (const std::int32_t begin : {0, 3, 9, 8191, 16384, 39000}) {
    Values logits = random_values(vocab, 3);
    for (const std::int32_t after : {0, 1, 7, 8, 500, 999}) {
      logits[at(begin + after)] = 2.0F;
    }
    HeadCase head = case_of_logits(logits, {begin, begin + 1, begin + 500});
    compare(fmt::format("largest from {}", begin), head);
    if (!no_device()) {
      head.gradient = false;
      CHECK(on_cuda(head, DType::f32)[2] == 1.0);
    }
  }
  compare("all equal", case_of_logits(Values(at(vocab), 0.5F), {0, 1, 39999}));
  compare("both zeros", case_of_logits({0.0F, -0.0F, 0.0F, -3.0F}, {0, 1}));
}

TEST_CASE("cuda twins: head loss of logits that are far from zero, or not finite",
          "[kernels][cuda][.gpu]") {
  constexpr std::int64_t vocab = 601;
  for (const float scale : {1e3F, 1e6F, 5e8F}) {
    compare(fmt::format("up to {}", scale),
            case_of_logits(random_values(vocab, 4, scale), {0, 600}));
    Values equal(at(vocab), -scale);
    compare(fmt::format("all {}", -scale), case_of_logits(equal, {3}));
  }
  for (const std::int64_t where : {0, 7, 300, 599, 600}) {
    Values logits = random_values(vocab, 5);
    logits[at(where)] = -infinity;
    compare(fmt::format("-Inf at {}", where), case_of_logits(logits, {1, 2}));
    for (const float poison : {nan, infinity}) {
      logits[at(where)] = poison;
      const HeadCase head = case_of_logits(logits, {1, 2});
      compare(fmt::format("{} at {}", poison, where), head);
      if (!no_device()) {
        const Exact all = on_cuda(head, DType::bf16);
        CHECK(std::isnan(all[0]));
        CHECK(std::isnan(all[1]));
        CHECK(std::isnan(all[5]));
      }
    }
  }
  compare("all -Inf", case_of_logits(Values(at(vocab), -infinity), {5}));
  compare("all NaN", case_of_logits(Values(at(vocab), nan), {5}));
  Values logits(at(vocab), -infinity);
  logits[400] = 1.0F;
  compare("one above -Inf", case_of_logits(logits, {400}));
}

TEST_CASE("cuda twins: head loss makes the step nonfinite where a target is unknown",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  for (const std::int32_t target : {-2, 601}) {
    HeadCase head = random_case(601);
    head.targets[3] = target;
    Side side = cuda_side();
    call(side, head);
    CHECK_THROWS_AS(side.results(), DeviceError);
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_head_loss_test
