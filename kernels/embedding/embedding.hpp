#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"

namespace train::kernels {

/// out[i,:] = scale * weight[token[i],:].
struct EmbeddingForwardParams {
  const std::int32_t* tokens = nullptr;  ///< [rows], each in [0, vocab).
  const void* weight = nullptr;          ///< [vocab, cols].
  void* out = nullptr;                   ///< [rows, cols].
  std::int64_t rows = 0, cols = 0, vocab = 0;
  float scale = 1.0F;
  DType dtype = DType::f32;
};

/// dweight[v,:] = scale * sum of dout[i,:] over the i with token[i] == v, in the order of i; other
/// rows become zero. With `accumulate` the sum starts from dweight's value and other rows are kept.
/// A scale other than 1 multiplies each term.
struct EmbeddingBackwardParams {
  const std::int32_t* tokens = nullptr;  ///< [rows].
  const void* dout = nullptr;            ///< [rows, cols].
  float* dweight = nullptr;              ///< [vocab, cols], overwritten unless `accumulate`.
  std::int64_t rows = 0, cols = 0, vocab = 0;
  bool accumulate = false;
  float scale = 1.0F;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
