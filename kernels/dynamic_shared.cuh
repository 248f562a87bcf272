#pragma once

#include <cuda_runtime.h>

namespace train::kernels::cuda {

/// The block's dynamic shared memory, aligned to 1024 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(1024) float4 dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

}  // namespace train::kernels::cuda
