#include <cstdint>

#include "kernels/bf16.cuh"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/optimizer_factors.hpp"
#include "kernels/optimizer/update_guard.hpp"
#include "kernels/tensors.cuh"

namespace train::kernels::cuda {
namespace {

struct AdamwEach {
  using Tensor = AdamwParams::Tensor;
  const UpdateGuard* guard;
  AdamwFactors f;

  static constexpr std::int64_t count(const Tensor& a) { return a.count; }
  static __device__ bool aligned(const Tensor& a) {
    const auto rounded = reinterpret_cast<std::uintptr_t>(a.rounded);
    return rounded % (4 * sizeof(std::uint16_t)) == 0 && aligned_to_vectors(a.p, a.g, a.m, a.v);
  }
  template <int n>
  __device__ void run(const Tensor& a, std::int64_t i) const {
    if (guard->nonfinite != 0) {
      return;
    }
    const float grad_scale = guard->grad_scale;
    const Several<float, n> gradient(a.g, i);
    Several<float, n> p(a.p, i);
    Several<float, n> first(a.m, i);
    Several<float, n> second(a.v, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float g = grad_scale * gradient.value[j];
      const float m = fmaf(f.beta1, first.value[j], f.one_minus_beta1 * g);
      const float v = fmaf(f.beta2, second.value[j], f.one_minus_beta2 * (g * g));
      const float denominator = fmaf(sqrtf(v), f.inverse_root_correction2, f.eps);
      const float kept = f.keep * p.value[j];
      p.value[j] = fmaf(-f.step_size, m / denominator, kept) * f.keep_after;
      first.value[j] = m;
      second.value[j] = v;
    }
    p.store(a.p, i);
    first.store(a.m, i);
    second.store(a.v, i);
    if (a.rounded != nullptr) {
      struct alignas(n * sizeof(std::uint16_t)) Rounded {
        std::uint16_t bits[n];
      } rounded;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        rounded.bits[j] = upper_half(p.value[j]);
      }
      *reinterpret_cast<Rounded*>(a.rounded + i) = rounded;
    }
  }
};

}  // namespace

void adamw_update(CudaStream& stream, const AdamwParams& p) {
  launch_tensors(stream, p.tensors, AdamwEach{p.guard, factors_of(p)});
}

}  // namespace train::kernels::cuda
