#include <cstdint>

#include "kernels/activation/activation.hpp"
#include "kernels/activation/activation_values.cuh"
#include "kernels/element.cuh"

namespace train::kernels::cuda {
namespace {

template <class T>
struct GeluForwardEach {
  GeluForwardParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    Several<T, n> x(p.x, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      x.value[j] = x.value[j] * normal_at<T>(x.value[j]).cdf;
    }
    x.store(p.y, i);
  }
};

template <class T>
struct GeluBackwardEach {
  GeluBackwardParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    Several<T, n> x(p.x, i);
    Several<T, n> gradient(p.dy, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float at = x.value[j];
      const Normal normal = normal_at<T>(at);
      gradient.value[j] = gradient.value[j] * gelu_slope(at, normal);
      x.value[j] = at * normal.cdf;
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
      gate.value[j] = gate.value[j] * sigmoid<T>(gate.value[j]) * up.value[j];
    }
    gate.store(p.y, i);
  }
};

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
      sigmoids[j] = sigmoid<T>(gate.value[j]);
    }
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float s = sigmoids[j];
      const float silu = gate.value[j] * s;
      gate.value[j] = dy.value[j] * up.value[j] * silu_slope(s, silu);
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

/// Addresses element `i` of rows (token, head) of `head_dim` in a tensor.
struct RowElement {
  std::int64_t token, head, column;
  __device__ RowElement(std::int64_t i, std::int64_t heads, std::int64_t head_dim) {
    if (i <= UINT32_MAX) {  // A 64-bit division takes a hundred instructions.
      const auto at = static_cast<std::uint32_t>(i);
      const std::uint32_t row = at / static_cast<std::uint32_t>(head_dim);
      token = row / static_cast<std::uint32_t>(heads);
      head = row % static_cast<std::uint32_t>(heads);
      column = at % static_cast<std::uint32_t>(head_dim);
    } else {
      token = i / head_dim / heads;
      head = i / head_dim % heads;
      column = i % head_dim;
    }
  }
  [[nodiscard]] __device__ std::int64_t in(const RowLayout& layout) const {
    return token * layout.outer_stride + head * layout.inner_stride + column;
  }
};

/// True if all rows of tensors with such layouts can be moved 16 bytes at a time.
template <class... Layouts>
bool whole_vectors(std::int64_t head_dim, DType dtype, const Layouts&... layouts) {
  const auto elements = static_cast<std::int64_t>(kVectorBytes / size_of(dtype));
  return head_dim % elements == 0 &&
         ((layouts.outer_stride % elements == 0 && layouts.inner_stride % elements == 0) && ...);
}

template <class T>
struct SigmoidGateForwardEach {
  SigmoidGateForwardParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    const RowElement at(i, p.heads, p.head_dim);
    Several<T, n> x(p.x, at.in(p.x_layout));
    const Several<T, n> gate(p.gate, at.in(p.gate_layout));
#pragma unroll
    for (int j = 0; j < n; ++j) {
      x.value[j] = x.value[j] * sigmoid<T>(gate.value[j]);
    }
    x.store(p.y, at.in(p.y_layout));
  }
};

template <class T>
struct SigmoidGateBackwardEach {
  SigmoidGateBackwardParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    const RowElement at(i, p.heads, p.head_dim);
    Several<T, n> x(p.x, at.in(p.x_layout));
    Several<T, n> gate(p.gate, at.in(p.gate_layout));
    const Several<T, n> dy(p.dy, at.in(p.dy_layout));
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float s = sigmoid<T>(gate.value[j]);
      gate.value[j] = dy.value[j] * x.value[j] * (s * (1.0F - s));
      x.value[j] = dy.value[j] * s;
    }
    x.store(p.dx, at.in(p.dx_layout));
    gate.store(p.dgate, at.in(p.dgate_layout));
  }
};

}  // namespace

void gelu_forward(CudaStream& stream, const GeluForwardParams& p) {
  launch_typed_several<GeluForwardEach>(stream, p.count, aligned_to_vectors(p.x, p.y), p);
}

void gelu_backward(CudaStream& stream, const GeluBackwardParams& p) {
  launch_typed_several<GeluBackwardEach>(stream, p.count, aligned_to_vectors(p.x, p.dy, p.dx, p.y),
                                         p);
}

void swiglu_forward(CudaStream& stream, const SwigluForwardParams& p) {
  launch_typed_several<SwigluForwardEach>(stream, p.count, aligned_to_vectors(p.gate, p.up, p.y),
                                          p);
}

void swiglu_backward(CudaStream& stream, const SwigluBackwardParams& p) {
  launch_typed_several<SwigluBackwardEach>(
      stream, p.count, aligned_to_vectors(p.gate, p.up, p.dy, p.dgate, p.dup, p.y), p);
}

void sigmoid_gate_forward(CudaStream& stream, const SigmoidGateForwardParams& p) {
  const bool aligned = whole_vectors(p.head_dim, p.dtype, p.x_layout, p.gate_layout, p.y_layout) &&
                       aligned_to_vectors(p.x, p.gate, p.y);
  launch_typed_several<SigmoidGateForwardEach>(stream, p.tokens * p.heads * p.head_dim, aligned, p);
}

void sigmoid_gate_backward(CudaStream& stream, const SigmoidGateBackwardParams& p) {
  const bool aligned = whole_vectors(p.head_dim, p.dtype, p.x_layout, p.gate_layout, p.dy_layout,
                                     p.dx_layout, p.dgate_layout) &&
                       aligned_to_vectors(p.x, p.gate, p.dy, p.dx, p.dgate);
  launch_typed_several<SigmoidGateBackwardEach>(stream, p.tokens * p.heads * p.head_dim, aligned,
                                                p);
}

}  // namespace train::kernels::cuda
