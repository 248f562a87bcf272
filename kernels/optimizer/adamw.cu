#include <cstdint>

#include "kernels/bf16.cuh"
#include "kernels/element.cuh"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/optimizer_factors.hpp"

namespace train::kernels::cuda {
namespace {

struct AdamwEach {
  AdamwParams a;
  AdamwFactors f;
  template <int n>
  __device__ void run(std::int64_t i) const {
    if (a.guard->nonfinite != 0) {
      return;
    }
    const float grad_scale = a.guard->grad_scale;
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
  const bool whole = reinterpret_cast<std::uintptr_t>(p.rounded) % (4 * sizeof(std::uint16_t)) == 0;
  launch_several<4>(stream, p.count, whole && aligned_to_vectors(p.p, p.g, p.m, p.v),
                    AdamwEach{p, factors_of(p)});
}

}  // namespace train::kernels::cuda
