#pragma once

#include <cstdint>

#include "kernels/device/cuda_stream.hpp"
#include "kernels/dtype.hpp"

// Kernels for comparing product algorithms (matmul_cuda.cpp). They launch and do not wait. Throw
// DeviceError.
namespace train::kernels::cuda {

/// Fills `data` with `count` elements of either sign in [0.5, 1), always the same.
void fill_with_random(CudaStream& stream, void* data, std::int64_t count, DType dtype);

/// Output matrix of a product: rows `stride` elements apart; memory between rows must not be
/// touched.
struct TrialMatrix {
  void* data = nullptr;
  std::int64_t rows = 0, cols = 0, stride = 0;
  DType dtype = DType::f32;
};

/// Fills a matrix like the above, without touching memory between its rows.
void fill_with_random(CudaStream& stream, const TrialMatrix& matrix);

/// Adds a hash of all elements' bits and places to *fold (device memory). It is an integer sum, so
/// order does not matter; different matrices collide with probability 2^-64. Comparing hashes
/// avoids keeping a second matrix.
void fold_bits(CudaStream& stream, const TrialMatrix& matrix, unsigned long long* fold);

}  // namespace train::kernels::cuda
