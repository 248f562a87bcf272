#pragma once

#include <cstdint>

#include "kernels/device/cuda_stream.hpp"
#include "kernels/dtype.hpp"

// What ways to compute a product are compared by (matmul_cuda.cpp). They launch, and do not wait.
// Throw DeviceError.
namespace train::kernels::cuda {

/// Fills `data` with `count` elements of either sign in [0.5, 1), the same ones every time.
void fill_with_random(CudaStream& stream, void* data, std::int64_t count, DType dtype);

/// A matrix as a product leaves it: `stride` elements from a row to the next, and what lies between
/// them is somebody else's.
struct TrialMatrix {
  void* data = nullptr;
  std::int64_t rows = 0, cols = 0, stride = 0;
  DType dtype = DType::f32;
};

/// The same into the elements of a matrix, and nowhere else.
void fill_with_random(CudaStream& stream, const TrialMatrix& matrix);

/// Adds to *fold, of the device's memory, what the bits of all elements and their places make: a
/// sum of integers, which has no order. Matrices that differ have the same one by chance alone, of
/// 2^64. So one of them need not be kept to be compared.
void fold_bits(CudaStream& stream, const TrialMatrix& matrix, unsigned long long* fold);

}  // namespace train::kernels::cuda
