#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"

namespace train::kernels {

/// out = x + scale * branch (out may be x).
struct ResidualAddParams {
  const void* x = nullptr;
  const void* branch = nullptr;
  void* out = nullptr;
  float scale = 1.0F;
  std::int64_t count = 0;
  DType dtype = DType::f32;
};

/// left += right, the node of a canonical tree over lanes (f32).
struct TreeAddParams {
  float* left = nullptr;
  const float* right = nullptr;
  std::int64_t count = 0;
};

struct FillParams {
  float* out = nullptr;
  float value = 0.0F;
  std::int64_t count = 0;
};

struct CopyParams {
  void* out = nullptr;
  const void* in = nullptr;
  std::int64_t size_bytes = 0;
};

/// *nonfinite = number of NaN and Inf elements.
struct CountNonfiniteParams {
  const void* x = nullptr;
  std::int64_t count = 0;
  std::int64_t* nonfinite = nullptr;
  DType dtype = DType::f32;
};

namespace cpu {
void residual_add(Stream& stream, const ResidualAddParams& params);
void tree_add(Stream& stream, const TreeAddParams& params);
void fill(Stream& stream, const FillParams& params);
void copy(Stream& stream, const CopyParams& params);
void count_nonfinite(Stream& stream, const CountNonfiniteParams& params);
}  // namespace cpu

}  // namespace train::kernels
