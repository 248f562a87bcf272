#include "kernels/ademamix.hpp"
#include "kernels/launch.cuh"
#include "kernels/optimizer_factors.hpp"

namespace train::kernels::cuda {
namespace {

struct AdemamixEach {
  AdemamixParams p;
  AdemamixFactors f;
  __device__ void operator()(std::int64_t i) const {
    if (p.gate->poisoned != 0) {
      return;
    }
    const float g = p.gate->grad_scale * p.g[i];
    const float fast = fmaf(f.beta1, p.fast[i], f.one_minus_beta1 * g);
    const float slow = fmaf(f.beta3, p.slow[i], f.one_minus_beta3 * g);
    const float v = fmaf(f.beta2, p.v[i], f.one_minus_beta2 * (g * g));
    const float denominator = fmaf(sqrtf(v), f.inverse_root_correction2, f.eps);
    const float mixed = fmaf(fast, f.inverse_correction1, f.alpha * slow);
    p.p[i] = fmaf(-f.lr, mixed / denominator, f.keep * p.p[i]);
    p.fast[i] = fast;
    p.slow[i] = slow;
    p.v[i] = v;
  }
};

}  // namespace

void ademamix_update(Stream& stream, const AdemamixParams& params) {
  submit(stream, params, [](CudaStream& native, const AdemamixParams& p) {
    launch_each(native, p.count, AdemamixEach{p, factors_of(p)});
  });
}

}  // namespace train::kernels::cuda
