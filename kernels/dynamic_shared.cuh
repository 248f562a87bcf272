#pragma once

#include <cuda_runtime.h>

namespace train::kernels::cuda {

/// The block's dynamic shared memory, 16-byte aligned.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ float4 dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

}  // namespace train::kernels::cuda
