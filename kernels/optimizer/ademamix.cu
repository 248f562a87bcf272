#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/optimizer_factors.hpp"
#include "kernels/optimizer/update_guard.hpp"
#include "kernels/tensors.cuh"

namespace train::kernels::cuda {
namespace {

struct AdemamixEach {
  using Tensor = AdemamixParams::Tensor;
  const UpdateGuard* guard;
  AdemamixFactors f;

  static constexpr std::int64_t count(const Tensor& a) { return a.count; }
  static __device__ bool aligned(const Tensor& a) {
    return aligned_to_vectors(a.p, a.g, a.fast, a.slow, a.v);
  }
  template <int n>
  __device__ void run(const Tensor& a, std::int64_t i) const {
    if (guard->nonfinite != 0) {
      return;
    }
    const float grad_scale = guard->grad_scale;
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
  launch_tensors(stream, p.tensors, AdemamixEach{p.guard, factors_of(p)});
}

}  // namespace train::kernels::cuda
