#include "kernels/gemm/product_choice.hpp"

namespace train::kernels {

std::size_t choose_product(std::size_t count, const ProductTrial& trial) {
  constexpr double gain = 0.98;
  if (count < 2) {
    return 0;
  }
  std::size_t best = 0;
  double best_s = trial.seconds(0) * gain;
  for (std::size_t way = 1; way < count; ++way) {
    if (!trial.same_bits(way)) {
      continue;
    }
    if (const double way_s = trial.seconds(way); way_s < best_s) {
      best = way;
      best_s = way_s;
    }
  }
  return best;
}

}  // namespace train::kernels
