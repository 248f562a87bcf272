#include "kernels/element.cuh"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/optimizer_factors.hpp"

namespace train::kernels::cuda {
namespace {

struct AdemamixEach {
  AdemamixParams a;
  AdemamixFactors f;
  template <int n>
  __device__ void run(std::int64_t i) const {
    if (a.guard->nonfinite != 0) {
      return;
    }
    const float grad_scale = a.guard->grad_scale;
    const Several<float, n> gradient(a.g, i);
    Several<float, n> p(a.p, i);
    Several<float, n> fast(a.fast, i);
    Several<float, n> slow(a.slow, i);
    Several<float, n> second(a.v, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float g = grad_scale * gradient.value[j];
      fast.value[j] = fmaf(f.beta1, fast.value[j], f.one_minus_beta1 * g);
      slow.value[j] = fmaf(f.beta3, slow.value[j], f.one_minus_beta3 * g);
      const float v = fmaf(f.beta2, second.value[j], f.one_minus_beta2 * (g * g));
      const float denominator = fmaf(sqrtf(v), f.inverse_root_correction2, f.eps);
      const float mixed = fmaf(fast.value[j], f.inverse_correction1, f.alpha * slow.value[j]);
      p.value[j] = fmaf(-f.lr, mixed / denominator, f.keep * p.value[j]);
      second.value[j] = v;
    }
    p.store(a.p, i);
    fast.store(a.fast, i);
    slow.store(a.slow, i);
    second.store(a.v, i);
  }
};

}  // namespace

void ademamix_update(CudaStream& stream, const AdemamixParams& p) {
  launch_several<4>(stream, p.count, aligned_to_vectors(p.p, p.g, p.fast, p.slow, p.v),
                    AdemamixEach{p, factors_of(p)});
}

}  // namespace train::kernels::cuda
