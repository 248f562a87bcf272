#include "kernels/activation.hpp"
#include "kernels/several.cuh"

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
  template <int n>
  __device__ void run(std::int64_t i) const {
    Several<T, n> x(p.x, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      x.value[j] = x.value[j] * normcdff(x.value[j]);
    }
    x.store(p.y, i);
  }
};

/// gelu'(x) = Phi(x) + x phi(x).
template <class T>
struct GeluBackwardEach {
  GeluBackwardParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    constexpr float inverse_sqrt_2pi = 0.39894228F;
    Several<T, n> x(p.x, i);
    Several<T, n> gradient(p.dy, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float at = x.value[j];
      const float cdf = normcdff(at);
      const float density = expf(at * at * -0.5F) * inverse_sqrt_2pi;
      gradient.value[j] = gradient.value[j] * fmaf(at, density, cdf);
      x.value[j] = at * cdf;
    }
    gradient.store(p.dx, i);
    if (p.y != nullptr) {
      x.store(p.y, i);
    }
  }
};

template <class T>
struct SwigluForwardEach {
  SwigluForwardParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    Several<T, n> gate(p.gate, i);
    const Several<T, n> up(p.up, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      gate.value[j] = gate.value[j] * sigmoid(gate.value[j]) * up.value[j];
    }
    gate.store(p.y, i);
  }
};

/// silu'(g) = s + g s (1 - s), s = sigmoid(g).
template <class T>
struct SwigluBackwardEach {
  SwigluBackwardParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    Several<T, n> gate(p.gate, i);
    Several<T, n> up(p.up, i);
    Several<T, n> dy(p.dy, i);
    float sigmoids[n];
#pragma unroll
    for (int j = 0; j < n; ++j) {
      sigmoids[j] = sigmoid(gate.value[j]);
    }
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float s = sigmoids[j];
      const float silu = gate.value[j] * s;
      gate.value[j] = dy.value[j] * up.value[j] * fmaf(silu, 1.0F - s, s);
      dy.value[j] = dy.value[j] * silu;
      up.value[j] = silu * up.value[j];
    }
    gate.store(p.dgate, i);
    dy.store(p.dup, i);
    if (p.y != nullptr) {
      up.store(p.y, i);
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
    launch_typed_several<GeluForwardEach>(native, p.count, aligned_to_vectors(p.x, p.y), p);
  });
}

void gelu_backward(Stream& stream, const GeluBackwardParams& params) {
  submit(stream, params, [](CudaStream& native, const GeluBackwardParams& p) {
    launch_typed_several<GeluBackwardEach>(native, p.count,
                                           aligned_to_vectors(p.x, p.dy, p.dx, p.y), p);
  });
}

void swiglu_forward(Stream& stream, const SwigluForwardParams& params) {
  submit(stream, params, [](CudaStream& native, const SwigluForwardParams& p) {
    launch_typed_several<SwigluForwardEach>(native, p.count, aligned_to_vectors(p.gate, p.up, p.y),
                                            p);
  });
}

void swiglu_backward(Stream& stream, const SwigluBackwardParams& params) {
  submit(stream, params, [](CudaStream& native, const SwigluBackwardParams& p) {
    launch_typed_several<SwigluBackwardEach>(
        native, p.count, aligned_to_vectors(p.gate, p.up, p.dy, p.dgate, p.dup, p.y), p);
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
