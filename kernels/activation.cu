#include "kernels/activation.hpp"
#include "kernels/element.cuh"

namespace train::kernels::cuda {
namespace {

/// 1 / (1 + exp(-x)), without overflow on either side.
__device__ float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

template <class T>
struct GeluForwardEach {
  GeluForwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const float x = load<T>(p.x, i);
    store<T>(p.y, i, x * normcdff(x));
  }
};

/// gelu'(x) = Phi(x) + x phi(x).
template <class T>
struct GeluBackwardEach {
  GeluBackwardParams p;
  __device__ void operator()(std::int64_t i) const {
    constexpr float inverse_sqrt_2pi = 0.39894228F;
    const float x = load<T>(p.x, i);
    const float cdf = normcdff(x);
    const float density = expf(x * x * -0.5F) * inverse_sqrt_2pi;
    store<T>(p.dx, i, load<T>(p.dy, i) * fmaf(x, density, cdf));
    if (p.y != nullptr) {
      store<T>(p.y, i, x * cdf);
    }
  }
};

template <class T>
struct SwigluForwardEach {
  SwigluForwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const float gate = load<T>(p.gate, i);
    store<T>(p.y, i, gate * sigmoid(gate) * load<T>(p.up, i));
  }
};

/// silu'(g) = s + g s (1 - s), s = sigmoid(g).
template <class T>
struct SwigluBackwardEach {
  SwigluBackwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const float gate = load<T>(p.gate, i);
    const float up = load<T>(p.up, i);
    const float dy = load<T>(p.dy, i);
    const float s = sigmoid(gate);
    const float silu = gate * s;
    store<T>(p.dgate, i, dy * up * fmaf(silu, 1.0F - s, s));
    store<T>(p.dup, i, dy * silu);
    if (p.y != nullptr) {
      store<T>(p.y, i, silu * up);
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

template <class T>
struct SigmoidGateForwardEach {
  SigmoidGateForwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const RowElement at(i, p.heads, p.head_dim);
    const float s = sigmoid(load<T>(p.gate, at.in(p.gate_layout)));
    store<T>(p.y, at.in(p.y_layout), load<T>(p.x, at.in(p.x_layout)) * s);
  }
};

template <class T>
struct SigmoidGateBackwardEach {
  SigmoidGateBackwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const RowElement at(i, p.heads, p.head_dim);
    const float s = sigmoid(load<T>(p.gate, at.in(p.gate_layout)));
    const float dy = load<T>(p.dy, at.in(p.dy_layout));
    const float x = load<T>(p.x, at.in(p.x_layout));
    store<T>(p.dx, at.in(p.dx_layout), dy * s);
    store<T>(p.dgate, at.in(p.dgate_layout), dy * x * (s * (1.0F - s)));
  }
};

}  // namespace

void gelu_forward(Stream& stream, const GeluForwardParams& params) {
  submit(stream, params, [](CudaStream& native, const GeluForwardParams& p) {
    launch_typed_each<GeluForwardEach>(native, p.count, p);
  });
}

void gelu_backward(Stream& stream, const GeluBackwardParams& params) {
  submit(stream, params, [](CudaStream& native, const GeluBackwardParams& p) {
    launch_typed_each<GeluBackwardEach>(native, p.count, p);
  });
}

void swiglu_forward(Stream& stream, const SwigluForwardParams& params) {
  submit(stream, params, [](CudaStream& native, const SwigluForwardParams& p) {
    launch_typed_each<SwigluForwardEach>(native, p.count, p);
  });
}

void swiglu_backward(Stream& stream, const SwigluBackwardParams& params) {
  submit(stream, params, [](CudaStream& native, const SwigluBackwardParams& p) {
    launch_typed_each<SwigluBackwardEach>(native, p.count, p);
  });
}

void sigmoid_gate_forward(Stream& stream, const SigmoidGateForwardParams& params) {
  submit(stream, params, [](CudaStream& native, const SigmoidGateForwardParams& p) {
    launch_typed_each<SigmoidGateForwardEach>(native, p.tokens * p.heads * p.head_dim, p);
  });
}

void sigmoid_gate_backward(Stream& stream, const SigmoidGateBackwardParams& params) {
  submit(stream, params, [](CudaStream& native, const SigmoidGateBackwardParams& p) {
    launch_typed_each<SigmoidGateBackwardEach>(native, p.tokens * p.heads * p.head_dim, p);
  });
}

}  // namespace train::kernels::cuda
