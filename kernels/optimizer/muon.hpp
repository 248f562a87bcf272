#pragma once

#include <cstdint>

namespace train::kernels {

struct UpdateGuard;

// Elementwise passes of Muon (Jordan et al. 2024); matmul computes the products between them.
// Values called "rounded to bf16" stay fp32 in memory: the product of two is exact in fp32, so a
// matmul of them equals one with bf16 inputs and fp32 sums.

/// m = momentum_keep m + gradient_add g', g' = guard->grad_scale g; then x = nesterov ?
/// next_gradient g' + next_momentum m : m, rounded to bf16. m is unchanged if `guard->nonfinite` is
/// set. 16 bytes per parameter.
struct MuonMomentumParams {
  const float* g = nullptr;
  float* m = nullptr;
  float* x = nullptr;
  const UpdateGuard* guard = nullptr;
  std::int64_t count = 0;
  double momentum_keep = 0.95, gradient_add = 0.05;
  double next_gradient = 0.05, next_momentum = 0.95;
  bool nesterov = true;
};

/// x *= 1 / max(sqrt(*squared_norm), least), or 1 / (sqrt(*squared_norm) + added); norm and result
/// are rounded to bf16.
struct MuonNormaliseParams {
  float* x = nullptr;
  const double* squared_norm = nullptr;
  std::int64_t count = 0;
  double least = 0.0, added = 0.0;
};

/// out = a x + b y, rounded to bf16. out may be x or y.
struct BlendBf16Params {
  const float* x = nullptr;
  const float* y = nullptr;
  float* out = nullptr;
  std::int64_t count = 0;
  double a = 1.0, b = 1.0;
};

/// p = (1 - decay) p - step_size x; no-op if `guard->nonfinite` is set. 12 bytes per parameter.
struct MuonApplyParams {
  float* p = nullptr;
  const float* x = nullptr;
  const UpdateGuard* guard = nullptr;
  std::int64_t count = 0;
  double decay = 0.0, step_size = 0.0;
};

}  // namespace train::kernels
