#pragma once

#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/muon.hpp"

// Scalar factors of an optimizer step, computed on the host in double and rounded once, so that
// they are equal on all devices. The guard's `grad_scale` is left to the kernel, which alone may
// read it, in stream order.
namespace train::kernels {

struct AdamwFactors {
  float grad_scale = 1.0F;
  float keep, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inverse_root_correction2;  ///< 1 / sqrt(1 - beta2^t)
  float eps, step_size;            ///< step_size = lr / (1 - beta1^t)
  float keep_after;                ///< 1: exact, as if there was no factor.
};

struct AdemamixFactors {
  float grad_scale = 1.0F;
  float keep, lr, eps;
  float beta1, one_minus_beta1, beta2, one_minus_beta2, beta3, one_minus_beta3;
  float inverse_correction1;       ///< 1 / (1 - beta1^t)
  float inverse_root_correction2;  ///< 1 / sqrt(1 - beta2^t)
  float alpha;
};

struct DanaFactors {
  float grad_scale = 1.0F;
  float a, one_minus_a, eps, clip, keep;
  float lr, lr_gamma_3;
  float growth;       ///< (1 + t)^(1 - kappa)
  float exponent;     ///< 1 - kappa
  float step, floor;  ///< t and 1 / (1 + t)
};

struct MuonMomentumFactors {
  float grad_scale = 1.0F;
  float momentum_keep, gradient_add, next_gradient, next_momentum;
};

[[nodiscard]] AdamwFactors factors_of(const AdamwParams& params);
[[nodiscard]] AdemamixFactors factors_of(const AdemamixParams& params);
[[nodiscard]] DanaFactors factors_of(const DanaParams& params);
[[nodiscard]] MuonMomentumFactors factors_of(const MuonMomentumParams& params);

}  // namespace train::kernels
