#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"

namespace train::kernels {

/// RMS norm behind a gate, of each group of columns alone (Dao & Gu 2024):
///   u = y silu(z),  out = weight u rstd,  rstd = 1 / sqrt(mean of u^2 in the
///   group + eps).
/// Row t of a matrix is at t times its stride.
struct GatedNormForwardParams {
  const void* y = nullptr;       ///< [rows, cols].
  const void* z = nullptr;       ///< [rows, cols].
  const void* weight = nullptr;  ///< [cols].
  void* out = nullptr;           ///< [rows, cols], rows side by side.
  float* rstd = nullptr;         ///< [rows, groups].
  std::int64_t rows = 0, cols = 0;
  std::int64_t groups = 1;  ///< Divides cols.
  std::int64_t y_stride = 0, z_stride = 0;
  float eps = 1e-5F;
  DType dtype = DType::f32;
};

/// Gradients from dout; `out` is overwritten by the norm's output. dweight:
/// sums over rows, of blocks that their number fixes, then of the blocks in
/// order.
struct GatedNormBackwardParams {
  const void* y = nullptr;
  const void* z = nullptr;
  const void* weight = nullptr;
  const float* rstd = nullptr;
  void* out = nullptr;       ///< [rows, cols]: dout.
  void* dy = nullptr;        ///< As y; may be it.
  void* dz = nullptr;        ///< As z; may be it.
  float* dweight = nullptr;  ///< [cols]; nullptr: not wanted.
  std::int64_t rows = 0, cols = 0;
  std::int64_t groups = 1;
  std::int64_t y_stride = 0, z_stride = 0;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
