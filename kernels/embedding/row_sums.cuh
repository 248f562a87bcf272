#pragma once

#include <cstdint>

#include "kernels/device/cuda_stream.hpp"
#include "kernels/dtype.hpp"

namespace train::kernels::cuda {

/// sums[v,:] = the sum of scale * data[i,:] over the i with token[i] == v, in the order of i; other
/// rows become zero. With `accumulate` the sum starts from the old value and other rows are kept.
struct RowSums {
  const std::int32_t* tokens = nullptr;  ///< [rows].
  const void* data = nullptr;            ///< [rows, cols], `stride` elements between rows.
  float* sums = nullptr;                 ///< [vocab, cols].
  std::int64_t rows = 0, cols = 0, vocab = 0, stride = 0;
  bool accumulate = false;
  float scale = 1.0F;
  DType dtype = DType::f32;  ///< Type of data.
};

/// Launches, and does not wait. A token outside [0, vocab) is reported as `kind` by `kernel`, and
/// its rows are skipped. Throws DeviceError.
void sum_rows(CudaStream& stream, const RowSums& params, const char* kernel,
              DeviceFault::Kind kind);

}  // namespace train::kernels::cuda
