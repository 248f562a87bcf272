#pragma once

#include <cstdint>
#include <vector>

namespace train::kernels {

struct UpdateGuard;

/// AdamW (Loshchilov & Hutter 2019), one fused pass over many tensors, 28 bytes per parameter (30
/// with `rounded`):
///   g' = guard->grad_scale * g;  p *= 1 - lr * weight_decay
///   m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2
///   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps);  p *= 1 - decay_after
/// No-op if `guard->nonfinite` is set. t = step, counted from 1. An element's bits depend only on
/// its
/// own values.
struct AdamwParams {
  struct Tensor {
    float* p = nullptr;
    const float* g = nullptr;
    float* m = nullptr;
    float* v = nullptr;
    std::uint16_t* rounded = nullptr;  ///< [count]: the new p as bf16; nullptr: not wanted.
    std::int64_t count = 0;
  };
  std::vector<Tensor> tensors = {};  ///< No two tensors share memory.
  const UpdateGuard* guard = nullptr;
  std::int64_t step = 1;
  double lr = 0.0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.0;
  double decay_after = 0.0;  ///< Fraction of the updated weights that this step subtracts.
};

}  // namespace train::kernels
