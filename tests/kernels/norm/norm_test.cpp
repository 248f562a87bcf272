#include "kernels/norm/norm.hpp"
#include "kernels/activation/elementwise.hpp"

#include <string>

#include "base/check.hpp"
#include "kernels/rope/rope.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::norm_test {
namespace {

constexpr double eps = 1e-5;

/// Rows of x and y lie apart from each other (fused heads), dx is packed.
struct Case {
  NormKind kind;
  std::int64_t outer, inner, cols;
  float dy_scale = 1.0F;

  [[nodiscard]] std::int64_t rows() const { return outer * inner; }
  [[nodiscard]] RowLayout spread() const { return {inner * (cols + 2) + 3, cols + 2}; }
  [[nodiscard]] RowLayout packed() const { return {inner * cols, cols}; }
  [[nodiscard]] std::int64_t broadcast_size() const { return outer * spread().outer_stride; }
  [[nodiscard]] std::int64_t packed_size() const { return rows() * cols; }
  [[nodiscard]] std::int64_t broadcast_at(std::int64_t row) const {
    return row / inner * spread().outer_stride + row % inner * spread().inner_stride;
  }
  [[nodiscard]] Values x() const {
    Values values = random_values(broadcast_size(), 1, 2.0F);
    for (float& value : values) {
      value += 0.5F;  // A mean worth subtracting.
    }
    return values;
  }
  [[nodiscard]] Values weight() const { return random_values(cols, 2); }
  [[nodiscard]] Values dy() const { return random_values(broadcast_size(), 3); }
  [[nodiscard]] std::string name() const {
    return std::string(kind == NormKind::layer ? "layer " : "rms ") + std::to_string(rows()) +
           " x " + std::to_string(cols);
  }
};

struct Moments {
  double mean, rstd;
};

Moments moments_of(NormKind kind, const double* x, std::int64_t cols) {
  const auto n = static_cast<double>(cols);
  double mean = 0.0;
  for (std::int64_t c = 0; kind == NormKind::layer && c < cols; ++c) {
    mean += x[c] / n;
  }
  double square = 0.0;
  for (std::int64_t c = 0; c < cols; ++c) {
    square += (x[c] - mean) * (x[c] - mean) / n;
  }
  return {.mean = mean, .rstd = 1.0 / std::sqrt(square + eps)};
}

/// The normalised row, not yet times the weight.
Exact normalised(NormKind kind, const double* x, std::int64_t cols) {
  const Moments m = moments_of(kind, x, cols);
  Exact y(at(cols));
  for (std::int64_t c = 0; c < cols; ++c) {
    y[at(c)] = (x[c] - m.mean) * m.rstd;
  }
  return y;
}

struct Forward {
  Values y, mean, rstd;
};

Forward forward(const Case& t, int threads) {
  Forward f{
      .y = untouched_values(t.packed_size()), .mean = zeros(t.rows()), .rstd = zeros(t.rows())};
  const Values x = t.x();
  const Values weight = t.weight();
  run(
      [&](Stream& stream) {
        cpu::norm_forward(stream, {.kind = t.kind,
                                   .x = x.data(),
                                   .weight = weight.data(),
                                   .y = f.y.data(),
                                   .mean = t.kind == NormKind::layer ? f.mean.data() : nullptr,
                                   .rstd = f.rstd.data(),
                                   .outer = t.outer,
                                   .inner = t.inner,
                                   .cols = t.cols,
                                   .x_layout = t.spread(),
                                   .y_layout = t.packed(),
                                   .eps = static_cast<float>(eps)});
      },
      threads);
  return f;
}

struct Backward {
  Values dx, dweight;
};

/// `dx`: what lies there before, added to when `accumulate`.
Backward backward(const Case& t, Values dx, bool accumulate, int threads) {
  const Forward f = forward(t, threads);
  Backward b{.dx = std::move(dx), .dweight = untouched_values(t.cols)};
  const Values x = t.x();
  const Values weight = t.weight();
  const Values dy = t.dy();
  run(
      [&](Stream& stream) {
        cpu::norm_backward(stream, {.kind = t.kind,
                                    .x = x.data(),
                                    .weight = weight.data(),
                                    .mean = t.kind == NormKind::layer ? f.mean.data() : nullptr,
                                    .rstd = f.rstd.data(),
                                    .dy = dy.data(),
                                    .dx = b.dx.data(),
                                    .dweight = b.dweight.data(),
                                    .outer = t.outer,
                                    .inner = t.inner,
                                    .cols = t.cols,
                                    .x_layout = t.spread(),
                                    .dy_layout = t.spread(),
                                    .dx_layout = t.packed(),
                                    .dy_scale = t.dy_scale,
                                    .accumulate_dx = accumulate});
      },
      threads);
  return b;
}

/// By finite differences of sum(dy * dy_scale * y), row by row.
Exact expected_dx(const Case& t) {
  const Exact x = exact(t.x());
  const Values weight = t.weight();
  const Values dy = t.dy();
  Exact dx;
  for (std::int64_t row = 0; row < t.rows(); ++row) {
    const std::int64_t first = t.broadcast_at(row);
    const Exact x_row(x.begin() + first, x.begin() + first + t.cols);
    const Exact gradient = finite_differences(x_row, [&](const Exact& moved) {
      const Exact xhat = normalised(t.kind, moved.data(), t.cols);
      double loss = 0.0;
      for (std::int64_t c = 0; c < t.cols; ++c) {
        loss += static_cast<double>(dy[at(first + c)]) * static_cast<double>(t.dy_scale) *
                static_cast<double>(weight[at(c)]) * xhat[at(c)];
      }
      return loss;
    });
    dx.insert(dx.end(), gradient.begin(), gradient.end());
  }
  return dx;
}

Exact expected_dweight(const Case& t) {
  const Exact x = exact(t.x());
  const Values dy = t.dy();
  Exact dweight(at(t.cols));
  for (std::int64_t row = 0; row < t.rows(); ++row) {
    const std::int64_t first = t.broadcast_at(row);
    const Exact xhat = normalised(t.kind, x.data() + first, t.cols);
    for (std::int64_t c = 0; c < t.cols; ++c) {
      dweight[at(c)] +=
          static_cast<double>(t.dy_scale) * static_cast<double>(dy[at(first + c)]) * xhat[at(c)];
    }
  }
  return dweight;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const std::int64_t cols : {7, 64, 257}) {
      all.push_back({.kind = kind, .outer = 1, .inner = 1, .cols = cols});
      all.push_back({.kind = kind, .outer = 9, .inner = 3, .cols = cols, .dy_scale = 0.5F});
    }
    all.push_back({.kind = kind, .outer = 1100, .inner = 2, .cols = 7});
  }
  all.push_back({.kind = NormKind::rms, .outer = 5, .inner = 1, .cols = 1});
  return all;
}

TEST_CASE("norm: forward agrees with a double reference on strided rows", "[kernels][norm]") {
  for (const Case& t : cases()) {
    const Exact x = exact(t.x());
    const Values weight = t.weight();
    Exact y;
    Exact mean;
    Exact rstd;
    for (std::int64_t row = 0; row < t.rows(); ++row) {
      const double* x_row = x.data() + t.broadcast_at(row);
      const Moments m = moments_of(t.kind, x_row, t.cols);
      mean.push_back(m.mean);
      rstd.push_back(m.rstd);
      const Exact xhat = normalised(t.kind, x_row, t.cols);
      for (std::int64_t c = 0; c < t.cols; ++c) {
        y.push_back(xhat[at(c)] * static_cast<double>(weight[at(c)]));
      }
    }
    const Forward f = forward(t, 2);
    // Float sums over at most 257 columns in 16 strands: a few ulps.
    require_near(f.y, y, 2e-6, t.name());
    require_near(f.mean, mean, 1e-6, t.name());
    require_near(f.rstd, rstd, 2e-6, t.name());
  }
}

TEST_CASE("norm: backward agrees with finite differences", "[kernels][norm]") {
  for (const Case& t : cases()) {
    const Exact dx = expected_dx(t);
    const Backward b = backward(t, untouched_values(t.packed_size()), false, 2);
    // Gradients of size 1 with the rounding of float sums, and 1e-9 from the differences.
    require_near(b.dx, dx, 1e-5, t.name() + " dx");
    const double rows = static_cast<double>(t.rows());
    require_near(b.dweight, expected_dweight(t), 1e-6 * (1.0 + std::sqrt(rows)),
                 t.name() + " dweight");

    const Values before = random_values(t.packed_size(), 9);
    Exact sum = dx;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += static_cast<double>(before[i]);
    }
    require_near(backward(t, before, true, 2).dx, sum, 1e-5, t.name() + " accumulated dx");
  }
}

TEST_CASE("norm: works in place, forward and backward", "[kernels][norm]") {
  const Case t{.kind = NormKind::layer, .outer = 6, .inner = 1, .cols = 71};
  const Values weight = t.weight();
  Values x = random_values(t.packed_size(), 4);
  Values y = zeros(t.packed_size());
  const Values dy = random_values(t.packed_size(), 5);
  Values dx = zeros(t.packed_size());
  Values in_place_dx = dy;
  Values in_place_y = x;
  Values mean = zeros(6);
  Values rstd = zeros(6);
  Values dweight = zeros(t.cols);
  NormForwardParams f{.x = x.data(),
                      .weight = weight.data(),
                      .y = y.data(),
                      .mean = mean.data(),
                      .rstd = rstd.data(),
                      .outer = 6,
                      .cols = t.cols,
                      .x_layout = t.packed(),
                      .y_layout = t.packed()};
  NormBackwardParams b{.x = x.data(),
                       .weight = weight.data(),
                       .mean = mean.data(),
                       .rstd = rstd.data(),
                       .dy = dy.data(),
                       .dx = dx.data(),
                       .dweight = dweight.data(),
                       .outer = 6,
                       .cols = t.cols,
                       .x_layout = t.packed(),
                       .dy_layout = t.packed(),
                       .dx_layout = t.packed()};
  run([&](Stream& stream) {
    cpu::norm_forward(stream, f);
    cpu::norm_backward(stream, b);
    f.x = f.y = in_place_y.data();
    cpu::norm_forward(stream, f);
    b.dy = b.dx = in_place_dx.data();
    cpu::norm_backward(stream, b);
  });
  REQUIRE(in_place_y == y);
  REQUIRE(in_place_dx == dx);
}

/// Positions start again after `seq_len` outer rows.
struct Turned {
  Values y, dx, dweight;
};

/// Forward and, in place, backward; `fused`: the norm rotates, or a rotation of its own does.
Turned turned(const Case& t, std::int64_t seq_len, bool fused) {
  Values cos = zeros(seq_len * t.cols / 2);
  Values sin = zeros(seq_len * t.cols / 2);
  const Values x = t.x();
  const Values weight = t.weight();
  Values mean = zeros(t.rows());
  Values rstd = zeros(t.rows());
  Turned r{.y = zeros(t.broadcast_size()), .dx = t.dy(), .dweight = zeros(t.cols)};
  const RowRotation rotation =
      fused ? RowRotation{.cos = cos.data(), .sin = sin.data(), .seq_len = seq_len} : RowRotation{};
  RopeParams rope{.x = r.y.data(),
                  .cos = cos.data(),
                  .sin = sin.data(),
                  .tokens = t.outer,
                  .seq_len = seq_len,
                  .heads = t.inner,
                  .head_dim = t.cols,
                  .layout = t.spread()};
  run([&](Stream& stream) {
    cpu::rope_table(stream,
                    {.cos = cos.data(), .sin = sin.data(), .seq_len = seq_len, .head_dim = t.cols});
    cpu::norm_forward(stream, {.kind = t.kind,
                               .x = x.data(),
                               .weight = weight.data(),
                               .y = r.y.data(),
                               .mean = mean.data(),
                               .rstd = rstd.data(),
                               .outer = t.outer,
                               .inner = t.inner,
                               .cols = t.cols,
                               .x_layout = t.spread(),
                               .y_layout = t.spread(),
                               .rotation = rotation});
    if (!fused) {
      cpu::rope_apply(stream, rope);
      rope.x = r.dx.data();
      rope.inverse = true;
      cpu::rope_apply(stream, rope);
    }
    cpu::norm_backward(stream, {.kind = t.kind,
                                .x = x.data(),
                                .weight = weight.data(),
                                .mean = mean.data(),
                                .rstd = rstd.data(),
                                .dy = r.dx.data(),
                                .dx = r.dx.data(),
                                .dweight = r.dweight.data(),
                                .outer = t.outer,
                                .inner = t.inner,
                                .cols = t.cols,
                                .x_layout = t.spread(),
                                .dy_layout = t.spread(),
                                .dx_layout = t.spread(),
                                .rotation = rotation});
  });
  return r;
}

TEST_CASE("norm: rotating on the way gives the bits of a rotation of its own", "[kernels][norm]") {
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const std::int64_t cols : {2, 34, 64, 128}) {
      const Case t{.kind = kind, .outer = 45, .inner = 3, .cols = cols};
      const Turned fused = turned(t, 9, true);
      const Turned apart = turned(t, 9, false);
      INFO(t.name());
      REQUIRE(fused.y == apart.y);
      REQUIRE(fused.dx == apart.dx);
      REQUIRE(fused.dweight == apart.dweight);
      REQUIRE(fused.dx != t.dy());
    }
  }
}

TEST_CASE("norm: adding a branch on the way gives the bits of an addition of its own",
          "[kernels][norm]") {
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const std::int64_t cols : {1, 34, 768}) {
      const Case t{.kind = kind, .outer = 37, .inner = 1, .cols = cols};
      CAPTURE(t.name());
      const Values base = random_values(t.packed_size(), 10);
      const Values branch = random_values(t.packed_size(), 11);
      const Values weight = t.weight();
      Values expected_sum = zeros(t.packed_size());
      Values sum = zeros(t.packed_size());
      NormForwardParams params{.kind = kind,
                               .x = expected_sum.data(),
                               .weight = weight.data(),
                               .outer = t.outer,
                               .cols = cols,
                               .x_layout = t.packed(),
                               .y_layout = t.packed()};
      Values y[2] = {zeros(t.packed_size()), zeros(t.packed_size())};
      Values mean = zeros(t.outer);
      Values rstd = zeros(t.outer);
      params.mean = mean.data();
      params.rstd = rstd.data();
      params.y = y[0].data();
      run([&](Stream& stream) {
        cpu::residual_add(stream, {.x = base.data(),
                                   .branch = branch.data(),
                                   .out = expected_sum.data(),
                                   .scale = 0.7F,
                                   .count = t.packed_size()});
        cpu::norm_forward(stream, params);
        params.x = sum.data();
        params.y = y[1].data();
        params.residual = {base.data(), branch.data(), sum.data(), 0.7F};
        cpu::norm_forward(stream, params);
      });
      CHECK(sum == expected_sum);
      CHECK(y[1] == y[0]);
      CHECK(sum != base);
    }
  }
}

TEST_CASE("norm: the bits do not depend on the threads", "[kernels][norm]") {
  for (const Case& t : cases()) {
    require_same_bits(
        [&](int threads) {
          const Forward f = forward(t, threads);
          const Backward b = backward(t, zeros(t.packed_size()), false, threads);
          return joined({f.y, f.mean, f.rstd, b.dx, b.dweight});
        },
        t.name());
  }
}

TEST_CASE("norm: no rows give a gradient of zeros", "[kernels][norm]") {
  Values dweight = untouched_values(3);
  run([&](Stream& stream) {
    NormBackwardParams params;
    params.dweight = dweight.data();
    params.cols = 3;
    cpu::norm_backward(stream, params);
  });
  REQUIRE(dweight == zeros(3));
}

}  // namespace
}  // namespace train::kernels::testing::norm_test
