#pragma once

#include <cstdint>
#include <vector>

namespace train::kernels {

struct UpdateGuard;

/// Per-row sums that a dana_update can write.
struct DanaRowSums {
  double alpha = 0.0;             ///< Sum of A, the clipped growth factor times the ratio.
  double ratio = 0.0;             ///< Sum of r = |m| / s (dana-star: with tau's correction).
  double momentum_squared = 0.0;  ///< Sum of m^2.
  double count = 0.0;             ///< Number of elements.
};

/// ADana, and Dana-Star if `tau` is given (Ferbach, Paquette, Gidel, Everett, Paquette 2026,
/// arXiv 2602.05298), one fused pass over many tensors; 28 bytes per parameter, Dana-Star 36. With
/// g' = guard->grad_scale * g, a = delta / (delta + t), t = step, counted from 1:
///   m += a (g' - m);  v = (1 - a) v + a g'^2;  s = sqrt(v) + eps
/// without tau:
///   r = |m| / s;  A = min((1 + t)^(1 - kappa) r, clip)
///   p -= lr g' / s + lr gamma_3 (sign(m) A + m / s)
/// with tau:
///   tau += a (|g'| / (|g'| + s) - tau);  c = min(tau, 1/2);  R = max(c / (1 - c), 1 / (1 + t))
///   n = sqrt(R) / s;  r = |m| n / R;  A = min(max(tau t, 1)^(1 - kappa) r, clip)
///   p -= lr g' n + lr gamma_3 sign(m) (R A + |m| n)
/// and finally p *= 1 - decay. Factors are computed in double and rounded once.
/// No-op if `guard->nonfinite` is set. An element's bits depend only on its own values.
struct DanaParams {
  struct Tensor {
    float* p = nullptr;
    const float* g = nullptr;
    float* m = nullptr;
    float* v = nullptr;
    float* tau = nullptr;  ///< nullptr: ADana.
    /// [rows]; nullptr: not wanted. In double, in an order that depends on `cols` alone.
    DanaRowSums* row_sums = nullptr;
    std::int64_t rows = 0, cols = 1;
  };
  std::vector<Tensor> tensors = {};  ///< No two tensors share memory.
  const UpdateGuard* guard = nullptr;
  std::int64_t step = 1;
  double lr = 0.0, delta = 8.0, kappa = 0.85, eps = 1e-8, gamma_3 = 1.0;
  double clip = 0.0;   ///< 0: no clipping.
  double decay = 0.0;  ///< Fraction of the weights that this step subtracts.
};

}  // namespace train::kernels
