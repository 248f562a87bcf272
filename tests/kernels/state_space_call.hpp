#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/state_space/causal_conv.hpp"
#include "kernels/state_space/head_scan.hpp"
#include "kernels/state_space/selective_scan.hpp"
#include "tests/kernels/kernel_fixture.hpp"

// What the tests of convolutions and scans share.
namespace train::kernels::testing {

using Places = std::vector<std::int32_t>;

/// Documents of these lengths, one behind the other.
inline Places places_of(const std::vector<std::int64_t>& lengths) {
  Places places;
  for (const std::int64_t length : lengths) {
    for (std::int64_t t = 0; t < length; ++t) {
      places.push_back(static_cast<std::int32_t>(t));
    }
  }
  return places;
}

/// The texts of their rows.
inline Places texts_of(const std::vector<std::int64_t>& lengths) {
  Places texts;
  for (std::size_t text = 0; text < lengths.size(); ++text) {
    texts.insert(texts.end(), at(lengths[text]), static_cast<std::int32_t>(text));
  }
  return texts;
}

/// Lengths below, at and above the taps of a convolution and the chunks of a scan.
inline const std::vector<std::int64_t> kLengths = {
    1, 2, 3, 4, kScanChunk - 1, kScanChunk, kScanChunk + 1, 2 * kScanChunk + 1};

/// log(1 + exp(x)) in double.
inline double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// The columns from `first` on of a matrix, in double.
inline Exact columns(const Values& matrix, std::int64_t rows, std::int64_t stride,
                     std::int64_t first, std::int64_t cols) {
  Exact result;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = matrix.begin() + row * stride + first;
    result.insert(result.end(), begin, begin + cols);
  }
  return result;
}

inline Values columns_of(const Values& matrix, std::int64_t rows, std::int64_t stride,
                         std::int64_t first, std::int64_t cols) {
  const Exact wide = columns(matrix, rows, stride, first, cols);
  return {wide.begin(), wide.end()};
}

/// Finite differences of `loss`, which reads the inputs, by each of them, one behind the other.
template <class Loss>
Exact differences_by(std::initializer_list<Exact*> inputs, const Loss& loss) {
  Exact gradients;
  for (Exact* input : inputs) {
    const Exact gradient = finite_differences(*input, [&](const Exact& changed) {
      const Exact before = std::exchange(*input, changed);
      const double value = loss();
      *input = before;
      return value;
    });
    gradients.insert(gradients.end(), gradient.begin(), gradient.end());
  }
  return gradients;
}

/// The inputs of a scan, and rows of other things beside them.
struct ScanCase {
  std::int64_t rows, channels, states;
  std::int64_t u_stride = channels + 3, z_stride = 2 * channels, b_stride = 2 * states + 1;
  Values u = random_values(rows * u_stride, 1);
  Values delta = random_values(rows * channels, 2, 2.0F);
  Values bc = random_values(rows * b_stride, 3);
  Values z = random_values(rows * z_stride, 4, 3.0F);
  Values a_log = random_values(channels * states, 5);
  Values d = random_values(channels, 6);
  Values bias = random_values(channels, 7);
  Values dy = random_values(rows * channels, 8);

  [[nodiscard]] ScanInputs inputs(const DocumentRows& documents, std::int64_t first = 0) const {
    return {.rows = documents,
            .u = u.data() + first * u_stride,
            .delta = delta.data() + first * channels,
            .b = bc.data() + first * b_stride,
            .c = bc.data() + first * b_stride + states,
            .z = z.data() + first * z_stride,
            .a_log = a_log.data(),
            .d = d.data(),
            .delta_bias = bias.data(),
            .channels = channels,
            .states = states,
            .u_stride = u_stride,
            .delta_stride = channels,
            .b_stride = b_stride,
            .z_stride = z_stride};
  }
};

/// The inputs of a scan of heads: x, B and C of a row side by side.
struct HeadCase {
  std::int64_t rows, heads, groups, width, states;
  float least = 0.0F, most = std::numeric_limits<float>::infinity();
  Values xbc = random_values(rows * stride(), 1);
  Values delta = random_values(rows * heads, 2, 2.0F);
  Values a_log = random_values(heads, 3);
  Values d = random_values(heads, 4);
  Values bias = random_values(heads, 5);
  Values dy = random_values(rows * inner(), 6);

  [[nodiscard]] std::int64_t inner() const { return heads * width; }
  [[nodiscard]] std::int64_t stride() const { return inner() + 2 * groups * states + 3; }
  [[nodiscard]] HeadScanInputs inputs(const DocumentRows& documents, std::int64_t first = 0) const {
    const float* x = xbc.data() + first * stride();
    return {.rows = documents,
            .x = x,
            .b = x + inner(),
            .c = x + inner() + groups * states,
            .delta = delta.data() + first * heads,
            .a_log = a_log.data(),
            .d = d.data(),
            .delta_bias = bias.data(),
            .heads = heads,
            .groups = groups,
            .width = width,
            .states = states,
            .x_stride = stride(),
            .delta_stride = heads,
            .least_step = least,
            .most_step = most};
  }
};

}  // namespace train::kernels::testing
