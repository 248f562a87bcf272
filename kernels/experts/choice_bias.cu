#include "kernels/experts/experts.hpp"
#include "kernels/launch.cuh"
#include "kernels/optimizer/update_guard.hpp"

namespace train::kernels::cuda {
namespace {

/// Moves the bias of one expert. Counts are whole numbers, so their sum is exact.
struct MoveBiasEach {
  ChoiceBiasParams p;

  __device__ void operator()(std::int64_t expert) const {
    if (p.guard != nullptr && p.guard->nonfinite != 0) {
      return;
    }
    double sum = 0.0;
    for (std::int64_t i = 0; i < p.experts; ++i) {
      sum += static_cast<double>(p.counts[i]);
    }
    const double above =
        sum - static_cast<double>(p.experts) * static_cast<double>(p.counts[expert]);
    if (above != 0.0) {
      p.bias[expert] += above > 0.0 ? p.rate : -p.rate;
    }
  }
};

}  // namespace

void choice_bias_update(CudaStream& stream, const ChoiceBiasParams& p) {
  launch_each(stream, p.experts, MoveBiasEach{p});
}

}  // namespace train::kernels::cuda
