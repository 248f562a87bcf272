#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"
#include "kernels/norm/norm.hpp"

namespace train::kernels {

/// y = x * Phi(x), exact (erf). Hendrycks & Gimpel 2016.
struct GeluForwardParams {
  const void* x = nullptr;
  void* y = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
};
/// dx = dy * gelu'(x); dx may be dy.
struct GeluBackwardParams {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
  void* y = nullptr;  ///< Or not null: the forward pass's result again, bit for bit.
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
  void* dup = nullptr;  ///< May be dy.
  void* y = nullptr;    ///< Or not null: the forward pass's result again, bit for bit.
  std::int64_t count = 0;
  DType dtype = DType::f32;
};

/// y = x * sigmoid(gate), rows (token, head) of `head_dim` elements by layout.
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
  void* dx = nullptr;  ///< May be dy.
  void* dgate = nullptr;
  std::int64_t tokens = 0, heads = 0, head_dim = 0;
  RowLayout x_layout, gate_layout, dy_layout, dx_layout, dgate_layout;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
