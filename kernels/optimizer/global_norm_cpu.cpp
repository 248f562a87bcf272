#include "kernels/optimizer/global_norm.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "kernels/cpu_support.hpp"
#include "kernels/optimizer/update_guard.hpp"

namespace train::kernels::cpu {
namespace {

/// Sixteen partial sums, column c in sum c % 16, then a tree over them: one order on every machine.
double square_sum(const float* x, std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  std::array<double, lanes> sums{};
  std::int64_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const double value = x[c + static_cast<std::int64_t>(lane)];
      sums[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; c < count; ++c, ++lane) {
    const double value = x[c];
    sums[lane] += value * value;
  }
  for (std::size_t half = lanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) {
      sums[lane] += sums[lane + half];
    }
  }
  return sums[0];
}

double canonical_tree(const double* values, std::int64_t count, std::int64_t stride) {
  if (count == 1) {
    return values[0];
  }
  const auto below = static_cast<std::uint64_t>(count - 1);
  const auto split = static_cast<std::int64_t>(std::bit_floor(below));
  return canonical_tree(values, split, stride) +
         canonical_tree(values + split * stride, count - split, stride);
}

}  // namespace

void row_square_sums(const RowSquareSumsParams& p, int threads) {
  for (const RowSquareSumsParams::Tensor& t : p.tensors) {
    each_row(threads, t.rows, t.cols,
             [&](std::int64_t row) { t.row_sums[row] = square_sum(t.x + row * t.cols, t.cols); });
  }
}

void tree_sum(const TreeSumParams& p, int /*threads*/) {
  for (const TreeSumParams::Sum& sum : p.sums) {
    *sum.out = sum.count == 0 ? 0.0 : canonical_tree(sum.values, sum.count, sum.stride);
  }
}

void clip_scale(const ClipScaleParams& p, int /*threads*/) {
  const double norm = std::sqrt(*p.squared_norm);
  UpdateGuard& guard = *p.guard;
  guard.loss = p.loss_scale * *p.cross_entropy + p.z_scale * *p.z_squared;
  guard.grad_norm = static_cast<float>(norm);
  const double clip = p.clip;
  guard.grad_scale = clip > 0.0 ? static_cast<float>(std::min(1.0, clip / (norm + 1e-6))) : 1.0F;
  if (!std::isfinite(norm) || !std::isfinite(guard.loss)) {
    guard.nonfinite = 1;
  }
}

}  // namespace train::kernels::cpu
