#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device/stream.hpp"

namespace train::kernels {

/// A step of a running average of weights, one pass over many tensors, 12 bytes per parameter:
///   average = fma(share, p, fma(-share, average, average))
/// An element's bits depend on its own values alone.
struct AverageParams {
  struct Tensor {
    float* average = nullptr;
    const float* p = nullptr;
    std::int64_t count = 0;
  };
  std::vector<Tensor> tensors = {};  ///< No average is two tensors'.
  float share = 0.0F;                ///< Of p in what the average becomes.
};

}  // namespace train::kernels
