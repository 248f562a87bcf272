#pragma once

#include "tests/cuda_emulation/block.hpp"

// In the place of the product's header of this name, whose declaration only a CUDA compiler reads.
namespace train::kernels::cuda {

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(cuda_emulation::dynamic_shared_memory());
}

}  // namespace train::kernels::cuda
