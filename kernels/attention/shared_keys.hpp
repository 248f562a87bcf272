#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/row_layout.hpp"

namespace train::kernels {

/// out[row, head] = [left(row, head) | right(row, head)]. An inner stride of 0 is one part for all
/// heads: the rotated part of a latent attention's keys.
struct JoinHeadsParams {
  const void* left = nullptr;   ///< left_dim elements.
  const void* right = nullptr;  ///< right_dim elements.
  void* out = nullptr;          ///< [rows, heads, left_dim + right_dim].
  std::int64_t rows = 0, heads = 0, left_dim = 0, right_dim = 0;
  RowLayout left_layout, right_layout;
  DType dtype = DType::f32;
};

/// The reverse: left(row, head) = its part of x[row, head], right[row] = the sum of the other parts
/// over heads, rising, in single precision, rounded once.
struct SplitHeadsParams {
  const void* x = nullptr;  ///< [rows, heads, left_dim + right_dim].
  void* left = nullptr;
  void* right = nullptr;  ///< [rows, right_dim].
  std::int64_t rows = 0, heads = 0, left_dim = 0, right_dim = 0;
  RowLayout left_layout;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
