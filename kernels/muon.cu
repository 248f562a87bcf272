#include "kernels/bf16.cuh"
#include "kernels/launch.cuh"
#include "kernels/muon.hpp"
#include "kernels/optimizer_factors.hpp"

namespace train::kernels::cuda {
namespace {

struct MuonMomentumEach {
  MuonMomentumParams p;
  MuonMomentumFactors f;
  __device__ void operator()(std::int64_t i) const {
    if (p.gate->poisoned != 0) {
      return;
    }
    const float g = p.gate->grad_scale * p.g[i];
    const float m = fmaf(f.momentum_keep, p.m[i], f.gradient_add * g);
    p.m[i] = m;
    p.x[i] = rounded_to_bf16(p.nesterov ? fmaf(f.next_momentum, m, f.next_gradient * g) : m);
  }
};

struct MuonNormaliseEach {
  float* x;
  const double* squared_norm;
  float least, added;
  __device__ void operator()(std::int64_t i) const {
    const float norm = rounded_to_bf16(static_cast<float>(sqrt(*squared_norm)));
    // As std::max has it: NaN stays.
    const float divisor = rounded_to_bf16((norm < least ? least : norm) + added);
    x[i] = rounded_to_bf16(x[i] / divisor);
  }
};

struct BlendBf16Each {
  const float* x;
  const float* y;
  float* out;
  float a, b;
  __device__ void operator()(std::int64_t i) const {
    out[i] = rounded_to_bf16(fmaf(a, x[i], b * y[i]));
  }
};

struct MuonApplyEach {
  MuonApplyParams p;
  float keep, step_size;
  __device__ void operator()(std::int64_t i) const {
    if (p.gate->poisoned == 0) {
      p.p[i] = fmaf(-step_size, p.x[i], keep * p.p[i]);
    }
  }
};

}  // namespace

void muon_momentum(Stream& stream, const MuonMomentumParams& params) {
  submit(stream, params, [](CudaStream& native, const MuonMomentumParams& p) {
    launch_each(native, p.count, MuonMomentumEach{p, factors_of(p)});
  });
}

void muon_normalise(Stream& stream, const MuonNormaliseParams& params) {
  submit(stream, params, [](CudaStream& native, const MuonNormaliseParams& p) {
    launch_each(native, p.count,
                MuonNormaliseEach{p.x, p.squared_norm, static_cast<float>(p.least),
                                  static_cast<float>(p.added)});
  });
}

void blend_bf16(Stream& stream, const BlendBf16Params& params) {
  submit(stream, params, [](CudaStream& native, const BlendBf16Params& p) {
    launch_each(native, p.count,
                BlendBf16Each{p.x, p.y, p.out, static_cast<float>(p.a), static_cast<float>(p.b)});
  });
}

void muon_apply(Stream& stream, const MuonApplyParams& params) {
  submit(stream, params, [](CudaStream& native, const MuonApplyParams& p) {
    launch_each(
        native, p.count,
        MuonApplyEach{p, static_cast<float>(1.0 - p.decay), static_cast<float>(p.step_size)});
  });
}

}  // namespace train::kernels::cuda
