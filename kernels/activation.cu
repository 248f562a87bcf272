#include "kernels/activation.hpp"
#include "kernels/launch.cuh"

namespace train::kernels::cuda {
namespace {

/// 1 / (1 + exp(-x)), without overflow on either side.
__device__ float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

struct GeluForwardEach {
  GeluForwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const float x = static_cast<const float*>(p.x)[i];
    static_cast<float*>(p.y)[i] = x * normcdff(x);
  }
};

/// gelu'(x) = Phi(x) + x phi(x).
struct GeluBackwardEach {
  GeluBackwardParams p;
  __device__ void operator()(std::int64_t i) const {
    constexpr float inverse_sqrt_2pi = 0.39894228F;
    const float x = static_cast<const float*>(p.x)[i];
    const float cdf = normcdff(x);
    const float density = expf(x * x * -0.5F) * inverse_sqrt_2pi;
    static_cast<float*>(p.dx)[i] = static_cast<const float*>(p.dy)[i] * fmaf(x, density, cdf);
    if (p.y != nullptr) {
      static_cast<float*>(p.y)[i] = x * cdf;
    }
  }
};

struct SwigluForwardEach {
  SwigluForwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const float gate = static_cast<const float*>(p.gate)[i];
    static_cast<float*>(p.y)[i] = gate * sigmoid(gate) * static_cast<const float*>(p.up)[i];
  }
};

/// silu'(g) = s + g s (1 - s), s = sigmoid(g).
struct SwigluBackwardEach {
  SwigluBackwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const float gate = static_cast<const float*>(p.gate)[i];
    const float up = static_cast<const float*>(p.up)[i];
    const float dy = static_cast<const float*>(p.dy)[i];
    const float s = sigmoid(gate);
    const float silu = gate * s;
    static_cast<float*>(p.dgate)[i] = dy * up * fmaf(silu, 1.0F - s, s);
    static_cast<float*>(p.dup)[i] = dy * silu;
    if (p.y != nullptr) {
      static_cast<float*>(p.y)[i] = silu * up;
    }
  }
};

/// Element `i` of rows (token, head) of `head_dim`, in one of the tensors.
struct RowElement {
  std::int64_t token, head, column;
  __device__ RowElement(std::int64_t i, std::int64_t heads, std::int64_t head_dim)
      : token(i / head_dim / heads), head(i / head_dim % heads), column(i % head_dim) {}
  [[nodiscard]] __device__ std::int64_t in(const RowLayout& layout) const {
    return token * layout.outer_stride + head * layout.inner_stride + column;
  }
};

struct SigmoidGateForwardEach {
  SigmoidGateForwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const RowElement at(i, p.heads, p.head_dim);
    const float s = sigmoid(static_cast<const float*>(p.gate)[at.in(p.gate_layout)]);
    static_cast<float*>(p.y)[at.in(p.y_layout)] =
        static_cast<const float*>(p.x)[at.in(p.x_layout)] * s;
  }
};

struct SigmoidGateBackwardEach {
  SigmoidGateBackwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const RowElement at(i, p.heads, p.head_dim);
    const float s = sigmoid(static_cast<const float*>(p.gate)[at.in(p.gate_layout)]);
    const float dy = static_cast<const float*>(p.dy)[at.in(p.dy_layout)];
    const float x = static_cast<const float*>(p.x)[at.in(p.x_layout)];
    static_cast<float*>(p.dx)[at.in(p.dx_layout)] = dy * s;
    static_cast<float*>(p.dgate)[at.in(p.dgate_layout)] = dy * x * (s * (1.0F - s));
  }
};

}  // namespace

void gelu_forward(Stream& stream, const GeluForwardParams& params) {
  submit(stream, params, [](CudaStream& native, const GeluForwardParams& p) {
    launch_each(native, p.count, GeluForwardEach{p});
  });
}

void gelu_backward(Stream& stream, const GeluBackwardParams& params) {
  submit(stream, params, [](CudaStream& native, const GeluBackwardParams& p) {
    launch_each(native, p.count, GeluBackwardEach{p});
  });
}

void swiglu_forward(Stream& stream, const SwigluForwardParams& params) {
  submit(stream, params, [](CudaStream& native, const SwigluForwardParams& p) {
    launch_each(native, p.count, SwigluForwardEach{p});
  });
}

void swiglu_backward(Stream& stream, const SwigluBackwardParams& params) {
  submit(stream, params, [](CudaStream& native, const SwigluBackwardParams& p) {
    launch_each(native, p.count, SwigluBackwardEach{p});
  });
}

void sigmoid_gate_forward(Stream& stream, const SigmoidGateForwardParams& params) {
  submit(stream, params, [](CudaStream& native, const SigmoidGateForwardParams& p) {
    launch_each(native, p.tokens * p.heads * p.head_dim, SigmoidGateForwardEach{p});
  });
}

void sigmoid_gate_backward(Stream& stream, const SigmoidGateBackwardParams& params) {
  submit(stream, params, [](CudaStream& native, const SigmoidGateBackwardParams& p) {
    launch_each(native, p.tokens * p.heads * p.head_dim, SigmoidGateBackwardEach{p});
  });
}

}  // namespace train::kernels::cuda
