#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/cuda_stream.hpp"

namespace train::kernels::cuda {

/// Leaves for the host what is wrong in the data; of several findings one stays, whole. `kernel` is
/// an address of the host, handed through.
__device__ inline void report_fault(DeviceFault* fault, const char* kernel, std::int32_t value,
                                    std::int64_t position, std::int64_t limit) {
  if (atomicCAS(&fault->found, 0U, 1U) == 0U) {
    fault->value = value;
    fault->position = position;
    fault->limit = limit;
    fault->kernel = kernel;
  }
}

}  // namespace train::kernels::cuda
