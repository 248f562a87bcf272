#include "kernels/optimizer/optimizer_factors.hpp"

#include <cmath>
#include <limits>

#include "base/math/fixed_math.hpp"

namespace train::kernels {

AdamwFactors factors_of(const AdamwParams& p) {
  const auto t = static_cast<double>(p.step);
  const double correction1 = 1.0 - fixed::pow(p.beta1, t);
  const double correction2 = 1.0 - fixed::pow(p.beta2, t);
  return {.keep = static_cast<float>(1.0 - p.lr * p.weight_decay),
          .beta1 = static_cast<float>(p.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - p.beta1),
          .beta2 = static_cast<float>(p.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - p.beta2),
          .inverse_root_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
          .eps = static_cast<float>(p.eps),
          .step_size = static_cast<float>(p.lr / correction1),
          .keep_after = static_cast<float>(1.0 - p.decay_after)};
}

AdemamixFactors factors_of(const AdemamixParams& p) {
  const auto t = static_cast<double>(p.step);
  const double correction1 = 1.0 - fixed::pow(p.beta1, t);
  const double correction2 = 1.0 - fixed::pow(p.beta2, t);
  return {.keep = static_cast<float>(1.0 - p.decay),
          .lr = static_cast<float>(p.lr),
          .eps = static_cast<float>(p.eps),
          .beta1 = static_cast<float>(p.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - p.beta1),
          .beta2 = static_cast<float>(p.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - p.beta2),
          .beta3 = static_cast<float>(p.beta3),
          .one_minus_beta3 = static_cast<float>(1.0 - p.beta3),
          .inverse_correction1 = static_cast<float>(1.0 / correction1),
          .inverse_root_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
          .alpha = static_cast<float>(p.alpha)};
}

DanaFactors factors_of(const DanaParams& p) {
  const auto t = static_cast<double>(p.step);
  const double a = p.delta / (p.delta + t);
  return {
      .a = static_cast<float>(a),
      .one_minus_a = static_cast<float>(t / (p.delta + t)),
      .eps = static_cast<float>(p.eps),
      .clip = p.clip > 0.0 ? static_cast<float>(p.clip) : std::numeric_limits<float>::infinity(),
      .keep = static_cast<float>(1.0 - p.decay),
      .lr = static_cast<float>(p.lr),
      .lr_gamma_3 = static_cast<float>(p.lr * p.gamma_3),
      .growth = static_cast<float>(fixed::pow(1.0 + t, 1.0 - p.kappa)),
      .exponent = static_cast<float>(1.0 - p.kappa),
      .step = static_cast<float>(t),
      .floor = static_cast<float>(1.0 / (1.0 + t))};
}

MuonMomentumFactors factors_of(const MuonMomentumParams& p) {
  return {.momentum_keep = static_cast<float>(p.momentum_keep),
          .gradient_add = static_cast<float>(p.gradient_add),
          .next_gradient = static_cast<float>(p.next_gradient),
          .next_momentum = static_cast<float>(p.next_momentum)};
}

}  // namespace train::kernels
