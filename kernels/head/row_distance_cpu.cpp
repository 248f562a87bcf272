#include "kernels/head/row_distance.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu_support.hpp"

namespace train::kernels::cpu {
namespace {

/// Sixteen partial sums, column c in sum c % 16, then a tree over them, as in row_square_sums.
double distance_of(const float* x, const float* reference, std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  std::array<double, lanes> sums{};
  for (std::int64_t c = 0; c < count; c += lanes) {
    const std::int64_t inside = std::min(lanes, count - c);
    for (std::int64_t lane = 0; lane < inside; ++lane) {
      const double value = x[c + lane] - reference[c + lane];
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  for (std::size_t half = lanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) {
      sums[lane] += sums[lane + half];
    }
  }
  return std::sqrt(sums[0]);
}

void distance_row(const RowDistanceParams& p, std::int64_t row) {
  const float* x = static_cast<const float*>(p.x) + row * p.cols;
  float* reference = static_cast<float*>(p.reference) + row * p.cols;
  if (p.targets[row] < 0) {
    p.row_terms[row] = 0.0;
    std::fill_n(reference, p.cols, 0.0F);
    return;
  }
  const double distance = distance_of(x, reference, p.cols);
  const double weight = p.row_weight(row);
  p.row_terms[row] = weight * distance;
  const double factor =
      distance == 0.0 ? 0.0 : static_cast<double>(p.loss_scale) * weight / distance;
  for (std::int64_t c = 0; c < p.cols; ++c) {
    reference[c] = static_cast<float>(factor * static_cast<double>(x[c] - reference[c]));
  }
}

}  // namespace

void row_distance(const RowDistanceParams& p, int threads) {
  each_row(threads, p.rows, p.cols, [&](std::int64_t row) { distance_row(p, row); });
  LossSums sums;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const bool counts = p.targets[row] >= 0;
    sums.cross_entropy += p.row_terms[row];
    sums.targets += counts ? 1.0 : 0.0;
    sums.weights += counts ? static_cast<double>(p.row_weight(row)) : 0.0;
  }
  sums.cross_entropy = p.share * sums.cross_entropy + (p.add ? p.sums->cross_entropy : 0.0);
  *p.sums = sums;
}

}  // namespace train::kernels::cpu
