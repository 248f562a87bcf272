#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"

namespace train::kernels {

/// out[i,:] = weight[token[i],:].
struct EmbeddingForwardParams {
  const std::int32_t* tokens = nullptr;  ///< [rows], each in [0, vocab).
  const void* weight = nullptr;          ///< [vocab, cols].
  void* out = nullptr;                   ///< [rows, cols].
  std::int64_t rows = 0, cols = 0, vocab = 0;
  DType dtype = DType::f32;
};

/// dweight[v,:] = sum of dout[i,:] over the i with token[i] == v, in the order of i; other rows
/// zero. With `accumulate` the sum starts from what dweight holds, and other rows keep it.
struct EmbeddingBackwardParams {
  const std::int32_t* tokens = nullptr;  ///< [rows].
  const void* dout = nullptr;            ///< [rows, cols].
  float* dweight = nullptr;              ///< [vocab, cols], overwritten unless `accumulate`.
  std::int64_t rows = 0, cols = 0, vocab = 0;
  bool accumulate = false;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
