#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/kinds.hpp"
#include "kernels/row_layout.hpp"

namespace train::kernels {

/// y = x * Phi(x), exact (erf). Hendrycks & Gimpel 2016.
struct GeluForwardParams {
  const void* x = nullptr;
  void* y = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
};
/// dx = dy * gelu'(x). Results here and below may alias an input.
struct GeluBackwardParams {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
  void* y = nullptr;  ///< If not null: receives the forward result again, bit for bit.
  std::int64_t count = 0;
  DType dtype = DType::f32;
};

/// y = silu(gate) * up. Shazeer 2020.
struct SwigluForwardParams {
  const void* gate = nullptr;
  const void* up = nullptr;
  void* y = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
};
struct SwigluBackwardParams {
  const void* gate = nullptr;
  const void* up = nullptr;
  const void* dy = nullptr;
  void* dgate = nullptr;
  void* dup = nullptr;
  void* y = nullptr;  ///< If not null: receives the forward result again, bit for bit.
  std::int64_t count = 0;
  DType dtype = DType::f32;
};

/// y = act(x), or with `up` act(x) * up, on strided rows. gelu_forward and swiglu_forward do this
/// for whole buffers; this kernel covers every activation, and gates stored beside their factors.
struct ActivationForwardParams {
  ActivationKind kind = ActivationKind::silu;
  const void* x = nullptr;
  const void* up = nullptr;  ///< Optional; row stride as x.
  void* y = nullptr;
  std::int64_t rows = 0, cols = 0;
  std::int64_t x_stride = 0, y_stride = 0;  ///< Elements between rows.
  float alpha = 1.702F, limit = 7.0F;       ///< Constants of clamped_swiglu.
  DType dtype = DType::f32;
};
/// dx, and with `up` also dup, both with the row strides of x. y: the forward result again. Each
/// result may alias an input of the same stride.
struct ActivationBackwardParams {
  ActivationKind kind = ActivationKind::silu;
  const void* x = nullptr;
  const void* up = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
  void* dup = nullptr;  ///< Only with `up`.
  void* y = nullptr;    ///< Row stride as dy.
  std::int64_t rows = 0, cols = 0;
  std::int64_t x_stride = 0, dy_stride = 0, dx_stride = 0;
  float alpha = 1.702F, limit = 7.0F;  ///< As in the forward pass.
  DType dtype = DType::f32;
};

/// y = x * sigmoid(gate), rows (token, head) of `head_dim` elements, addressed by `layout`.
struct SigmoidGateForwardParams {
  const void* x = nullptr;
  const void* gate = nullptr;
  void* y = nullptr;
  std::int64_t tokens = 0, heads = 0, head_dim = 0;
  RowLayout x_layout, gate_layout, y_layout;
  DType dtype = DType::f32;
};
struct SigmoidGateBackwardParams {
  const void* x = nullptr;
  const void* gate = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
  void* dgate = nullptr;
  std::int64_t tokens = 0, heads = 0, head_dim = 0;
  RowLayout x_layout, gate_layout, dy_layout, dx_layout, dgate_layout;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
