#pragma once

#include <cstdint>
#include <vector>

namespace train::kernels {

/// Step of a running average of weights, one pass over many tensors, 12 bytes per parameter:
///   average = fma(share, p, fma(-share, average, average))
/// An element's bits depend only on its own values.
struct AverageParams {
  struct Tensor {
    float* average = nullptr;
    const float* p = nullptr;
    std::int64_t count = 0;
  };
  std::vector<Tensor> tensors = {};  ///< No two averages share memory.
  float share = 0.0F;                ///< Weight of p in the new average.
};

}  // namespace train::kernels
