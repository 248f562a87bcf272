#include "kernels/cpu_support.hpp"
#include "kernels/experts/experts.hpp"
#include "kernels/optimizer/update_guard.hpp"

namespace train::kernels::cpu {

void choice_bias_update(const ChoiceBiasParams& p, int /*threads*/) {
  if (p.guard != nullptr && p.guard->nonfinite != 0) {
    return;
  }
  double sum = 0.0;  // Whole numbers, exact in any order.
  for (std::int64_t expert = 0; expert < p.experts; ++expert) {
    sum += static_cast<double>(p.counts[expert]);
  }
  for (std::int64_t expert = 0; expert < p.experts; ++expert) {
    const double above =
        sum - static_cast<double>(p.experts) * static_cast<double>(p.counts[expert]);
    if (above != 0.0) {
      p.bias[expert] += above > 0.0 ? p.rate : -p.rate;
    }
  }
}

}  // namespace train::kernels::cpu
