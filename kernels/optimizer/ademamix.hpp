#pragma once

#include <cstdint>
#include <vector>

namespace train::kernels {

struct UpdateGuard;

/// AdEMAMix (Pagliardini, Ablin, Grangier 2024, arXiv 2409.03137), one fused pass over many
/// tensors, 36 bytes per parameter. With g' = guard->grad_scale * g and t = step, counted from 1:
///   fast = beta1 fast + (1 - beta1) g';  slow = beta3 slow + (1 - beta3) g'
///   v = beta2 v + (1 - beta2) g'^2
///   u = (fast / (1 - beta1^t) + alpha slow) / (sqrt(v) / sqrt(1 - beta2^t) + eps)
///   p = (1 - decay) p - lr u
/// beta3 and alpha are those of this step. Factors are computed in double and rounded once.
/// No-op if `guard->nonfinite` is set. An element's bits depend only on its own values.
struct AdemamixParams {
  struct Tensor {
    float* p = nullptr;
    const float* g = nullptr;
    float* fast = nullptr;
    float* slow = nullptr;
    float* v = nullptr;
    std::int64_t count = 0;
  };
  std::vector<Tensor> tensors = {};  ///< No two tensors share memory.
  const UpdateGuard* guard = nullptr;
  std::int64_t step = 1;
  double lr = 0.0, beta1 = 0.9, beta2 = 0.999, beta3 = 0.9999, alpha = 2.0, eps = 1e-8;
  double decay = 0.0;  ///< Fraction of the weights that this step subtracts.
};

}  // namespace train::kernels
