#pragma once

#include <cstdint>

#include "engine/model/elements.hpp"

namespace train::kernels {

struct MatmulParams;

}  // namespace train::kernels

namespace train::engine {

/// Sizes of y = x W^T: x [rows, inputs], y [rows, outputs], and W [outputs, inputs] as in torch, or
/// [inputs, outputs] where `transposed`.
struct LinearSizes {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  bool transposed = false;
};

/// Outputs [first, first + count) of a map, and elements between rows of its x and its y.
struct LinearPart {
  std::int64_t first = 0, count = 0;
  std::int64_t x_stride = 0, y_stride = 0;
};

/// y = x W^T; `y_stride` elements lie between rows of y.
[[nodiscard]] kernels::MatmulParams output_product(const LinearSizes& sizes, ConstElements x,
                                                   ConstElements weight, Elements y,
                                                   std::int64_t y_stride);
/// dx = dy W.
[[nodiscard]] kernels::MatmulParams input_product(const LinearSizes& sizes, ConstElements dy,
                                                  std::int64_t dy_stride, ConstElements weight,
                                                  Elements dx);
/// dW = dy^T x, in single precision.
[[nodiscard]] kernels::MatmulParams weight_product(const LinearSizes& sizes, ConstElements dy,
                                                   std::int64_t dy_stride, ConstElements x,
                                                   float* gradient);

}  // namespace train::engine
