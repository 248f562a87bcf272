#include "kernels/state_space/gated_norm.hpp"

#include "base/check.hpp"
#include "tests/kernels/state_space_call.hpp"

namespace train::kernels::testing::gated_norm_test {
namespace {

constexpr float kEps = 1e-2F;

struct Sizes {
  std::int64_t rows, cols, groups;
};
constexpr Sizes kSizes[] = {{1, 1, 1}, {3, 10, 2}, {40, 48, 1}, {5, 66, 3}, {70, 130, 2}};

/// The formula in double: y, z [rows, cols], weight.
Exact plain_norm(const Sizes& s, const Exact& y, const Exact& z, const Exact& weight) {
  Exact out(y.size());
  const std::int64_t cols = s.cols / s.groups;
  for (std::int64_t group = 0; group < s.rows * s.groups; ++group) {
    double squares = 0.0;
    for (std::int64_t i = group * cols; i < (group + 1) * cols; ++i) {
      out[at(i)] = y[at(i)] * z[at(i)] / (1.0 + std::exp(-z[at(i)]));
      squares += out[at(i)] * out[at(i)];
    }
    const double rstd =
        1.0 / std::sqrt(squares / static_cast<double>(cols) + static_cast<double>(kEps));
    for (std::int64_t i = group * cols; i < (group + 1) * cols; ++i) {
      out[at(i)] *= rstd * weight[at(i % s.cols)];
    }
  }
  return out;
}

struct Case {
  explicit Case(const Sizes& sizes)
      : s(sizes),
        y(random_values(s.rows * s.cols, 1)),
        z(random_values(s.rows * s.cols, 2, 3.0F)),
        weight(random_values(s.cols, 3)),
        dout(random_values(s.rows * s.cols, 4)) {}

  Sizes s;
  Values y, z, weight, dout;

  /// The output, and the statistics.
  [[nodiscard]] std::pair<Values, Values> forward(int threads = 2) const {
    Values out = untouched_values(s.rows * s.cols);
    Values rstd = untouched_values(s.rows * s.groups);
    run(
        [&](Stream& stream) {
          cpu::gated_norm_forward(stream, {.y = y.data(),
                                           .z = z.data(),
                                           .weight = weight.data(),
                                           .out = out.data(),
                                           .rstd = rstd.data(),
                                           .rows = s.rows,
                                           .cols = s.cols,
                                           .groups = s.groups,
                                           .y_stride = s.cols,
                                           .z_stride = s.cols,
                                           .eps = kEps});
        },
        threads);
    return {out, rstd};
  }

  /// dy, dz, dweight, and the output once more; `in_place`: dy and dz take the inputs' places.
  [[nodiscard]] Values backward(int threads = 2, bool in_place = false) const {
    const Values rstd = forward().second;
    Values out = dout;
    Values y_of = y;
    Values z_of = z;
    Values dy = untouched_values(s.rows * s.cols);
    Values dz = untouched_values(s.rows * s.cols);
    Values dweight = untouched_values(s.cols);
    run(
        [&](Stream& stream) {
          cpu::gated_norm_backward(stream, {.y = y_of.data(),
                                            .z = z_of.data(),
                                            .weight = weight.data(),
                                            .rstd = rstd.data(),
                                            .out = out.data(),
                                            .dy = in_place ? y_of.data() : dy.data(),
                                            .dz = in_place ? z_of.data() : dz.data(),
                                            .dweight = dweight.data(),
                                            .rows = s.rows,
                                            .cols = s.cols,
                                            .groups = s.groups,
                                            .y_stride = s.cols,
                                            .z_stride = s.cols});
        },
        threads);
    return joined({in_place ? y_of : dy, in_place ? z_of : dz, dweight, out});
  }
};

}  // namespace

TEST_CASE("gated_norm: values are those of the formula in double", "[kernels][ssm]") {
  for (const Sizes& sizes : kSizes) {
    const Case c(sizes);
    require_same_bits([&](int threads) { return c.forward(threads).first; }, "gated_norm_forward");
    require_near(c.forward().first, plain_norm(sizes, exact(c.y), exact(c.z), exact(c.weight)),
                 2e-6, "gated_norm_forward");
  }
}

TEST_CASE("gated_norm: gradients are those of differences in double", "[kernels][ssm]") {
  for (const Sizes& sizes : {kSizes[0], kSizes[1], Sizes{18, 12, 3}}) {
    const Case c(sizes);
    Exact y = exact(c.y);
    Exact z = exact(c.z);
    Exact weight = exact(c.weight);
    Exact expected = differences_by({&y, &z, &weight},
                                    [&] { return dot(plain_norm(sizes, y, z, weight), c.dout); });
    const Exact out = exact(c.forward().first);
    expected.insert(expected.end(), out.begin(), out.end());
    require_near(c.backward(), expected, 2e-5, "gated_norm_backward");
    CHECK(c.backward() == c.backward(2, /*in_place=*/true));
  }
}

TEST_CASE("gated_norm: no thread changes a bit of the gradients", "[kernels][ssm][P1]") {
  for (const Sizes& sizes : kSizes) {
    const Case c(sizes);
    require_same_bits([&](int threads) { return c.backward(threads); }, "gated_norm_backward");
  }
}

TEST_CASE("gated_norm: groups that do not divide are refused", "[kernels][ssm]") {
  const auto stream = make_inline_stream(1);
  Values memory = zeros(64);
  const GatedNormForwardParams p{.y = memory.data(),
                                 .z = memory.data(),
                                 .weight = memory.data(),
                                 .out = memory.data(),
                                 .rstd = memory.data(),
                                 .rows = 1,
                                 .cols = 10,
                                 .groups = 3,
                                 .y_stride = 10,
                                 .z_stride = 10};
  CHECK_THROWS_AS(cpu::gated_norm_forward(*stream, p), CheckFailed);
}

}  // namespace train::kernels::testing::gated_norm_test
