#pragma once

#include <cstdint>

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

/// out = left + right, one node of a canonical tree over lanes (f32). out may alias an input.
struct TreeAddParams {
  const float* left = nullptr;
  const float* right = nullptr;
  float* out = nullptr;
  std::int64_t count = 0;
};

/// y = scale * x (y may be x). With a `factor`, read on the device, the scale is scale * *factor.
struct ScaleParams {
  const void* x = nullptr;
  void* y = nullptr;
  float scale = 1.0F;
  const float* factor = nullptr;  ///< One element; nullptr: 1.
  std::int64_t count = 0;
  DType dtype = DType::f32;
};

/// g = 0 where the signs of g and other differ or one of them is zero; NaN where one is NaN, so
/// that a mask does not hide it.
struct MaskSignParams {
  float* g = nullptr;
  const float* other = nullptr;
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

/// *nonzero = number of elements that are not 0 (f32). NaN counts.
struct CountNonzeroParams {
  const float* x = nullptr;
  std::int64_t count = 0;
  std::int64_t* nonzero = nullptr;
};

/// out = in rounded to bfloat16, ties to even. NaN stays NaN (quiet); overflow becomes Inf. Integer
/// arithmetic, so all devices have the same bits.
struct PackBf16Params {
  const float* in = nullptr;
  std::uint16_t* out = nullptr;
  std::int64_t count = 0;
};

/// out = in, exactly.
struct UnpackBf16Params {
  const std::uint16_t* in = nullptr;
  float* out = nullptr;
  std::int64_t count = 0;
};

}  // namespace train::kernels
