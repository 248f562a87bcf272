#include "kernels/optimizer/average.hpp"
#include "kernels/tensors.cuh"

namespace train::kernels::cuda {
namespace {

struct AverageEach {
  using Tensor = AverageParams::Tensor;
  float share;

  static constexpr std::int64_t count(const Tensor& tensor) { return tensor.count; }
  static __device__ bool aligned(const Tensor& tensor) {
    return aligned_to_vectors(tensor.average, tensor.p);
  }
  template <int n>
  __device__ void run(const Tensor& tensor, std::int64_t i) const {
    const Several<float, n> weights(tensor.p, i);
    Several<float, n> average(tensor.average, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float kept = fmaf(-share, average.value[j], average.value[j]);
      average.value[j] = fmaf(share, weights.value[j], kept);
    }
    average.store(tensor.average, i);
  }
};

}  // namespace

void average_update(CudaStream& stream, const AverageParams& p) {
  launch_tensors(stream, p.tensors, AverageEach{p.share});
}

}  // namespace train::kernels::cuda
