#include "kernels/adamw.hpp"
#include "kernels/launch.cuh"
#include "kernels/optimizer_factors.hpp"

namespace train::kernels::cuda {
namespace {

struct AdamwEach {
  AdamwParams a;
  AdamwFactors f;
  __device__ void operator()(std::int64_t i) const {
    if (a.gate->poisoned != 0) {
      return;
    }
    const float g = a.gate->grad_scale * a.g[i];
    const float m = fmaf(f.beta1, a.m[i], f.one_minus_beta1 * g);
    const float v = fmaf(f.beta2, a.v[i], f.one_minus_beta2 * (g * g));
    const float denominator = fmaf(sqrtf(v), f.inverse_root_correction2, f.eps);
    const float kept = f.keep * a.p[i];
    a.p[i] = fmaf(-f.step_size, m / denominator, kept) * f.keep_after;
    a.m[i] = m;
    a.v[i] = v;
  }
};

}  // namespace

void adamw_update(Stream& stream, const AdamwParams& params) {
  submit(stream, params, [](CudaStream& native, const AdamwParams& p) {
    launch_each(native, p.count, AdamwEach{p, factors_of(p)});
  });
}

}  // namespace train::kernels::cuda
