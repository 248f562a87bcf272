#pragma once

#include <cstdint>

#include "kernels/device/cuda_stream.hpp"
#include "kernels/dtype.hpp"

// What ways to compute a product are compared by (matmul_cuda.cpp). They launch, and do not wait.
// Throw DeviceError.
namespace train::kernels::cuda {

/// Fills `data` with `count` elements of either sign in [0.5, 1), the same ones every time.
void fill_with_random(CudaStream& stream, void* data, std::int64_t count, DType dtype);

/// Adds to *differences in how many of `count` words of 32 bits the two differ.
void count_differences(CudaStream& stream, const void* left, const void* right, std::int64_t count,
                       std::uint32_t* differences);

}  // namespace train::kernels::cuda
