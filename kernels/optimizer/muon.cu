#include "kernels/bf16.cuh"
#include "kernels/element.cuh"
#include "kernels/optimizer/muon.hpp"
#include "kernels/optimizer/optimizer_factors.hpp"
#include "kernels/optimizer/update_guard.hpp"

namespace train::kernels::cuda {
namespace {

struct MuonMomentumEach {
  MuonMomentumParams p;
  MuonMomentumFactors f;
  template <int n>
  __device__ void run(std::int64_t i) const {
    if (p.guard->nonfinite != 0) {
      return;
    }
    const float grad_scale = p.guard->grad_scale;
    Several<float, n> x(p.g, i);
    Several<float, n> momentum(p.m, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float g = grad_scale * x.value[j];
      const float m = fmaf(f.momentum_keep, momentum.value[j], f.gradient_add * g);
      momentum.value[j] = m;
      x.value[j] = rounded_to_bf16(p.nesterov ? fmaf(f.next_momentum, m, f.next_gradient * g) : m);
    }
    momentum.store(p.m, i);
    x.store(p.x, i);
  }
};

struct MuonNormaliseEach {
  float* x;
  const double* squared_norm;
  float least, added;
  template <int n>
  __device__ void run(std::int64_t i) const {
    const float norm = rounded_to_bf16(static_cast<float>(sqrt(*squared_norm)));
    // Like std::max: NaN is kept.
    const float divisor = rounded_to_bf16((norm < least ? least : norm) + added);
    Several<float, n> values(x, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      values.value[j] = rounded_to_bf16(values.value[j] / divisor);
    }
    values.store(x, i);
  }
};

struct BlendBf16Each {
  const float* x;
  const float* y;
  float* out;
  float a, b;
  template <int n>
  __device__ void run(std::int64_t i) const {
    Several<float, n> blend(x, i);
    const Several<float, n> other(y, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      blend.value[j] = rounded_to_bf16(fmaf(a, blend.value[j], b * other.value[j]));
    }
    blend.store(out, i);
  }
};

struct MuonApplyEach {
  MuonApplyParams p;
  float keep, step_size;
  template <int n>
  __device__ void run(std::int64_t i) const {
    if (p.guard->nonfinite != 0) {
      return;
    }
    const Several<float, n> x(p.x, i);
    Several<float, n> weight(p.p, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      weight.value[j] = fmaf(-step_size, x.value[j], keep * weight.value[j]);
    }
    weight.store(p.p, i);
  }
};

}  // namespace

void muon_momentum(CudaStream& stream, const MuonMomentumParams& p) {
  launch_several<4>(stream, p.count, aligned_to_vectors(p.g, p.m, p.x),
                    MuonMomentumEach{p, factors_of(p)});
}

void muon_normalise(CudaStream& stream, const MuonNormaliseParams& p) {
  launch_several<4>(stream, p.count, aligned_to_vectors(p.x),
                    MuonNormaliseEach{p.x, p.squared_norm, static_cast<float>(p.least),
                                      static_cast<float>(p.added)});
}

void blend_bf16(CudaStream& stream, const BlendBf16Params& p) {
  launch_several<4>(
      stream, p.count, aligned_to_vectors(p.x, p.y, p.out),
      BlendBf16Each{p.x, p.y, p.out, static_cast<float>(p.a), static_cast<float>(p.b)});
}

void muon_apply(CudaStream& stream, const MuonApplyParams& p) {
  launch_several<4>(
      stream, p.count, aligned_to_vectors(p.p, p.x),
      MuonApplyEach{p, static_cast<float>(1.0 - p.decay), static_cast<float>(p.step_size)});
}

}  // namespace train::kernels::cuda
