#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"

namespace train::kernels {

/// out = the upper halves of in, rounded to the nearest bfloat16, ties to even. NaN stays NaN (and
/// quiet), what is too large becomes Inf. Integer arithmetic: the same bits on every device.
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

namespace cpu {
void pack_bf16(Stream& stream, const PackBf16Params& params);
void unpack_bf16(Stream& stream, const UnpackBf16Params& params);
}  // namespace cpu

namespace cuda {
void pack_bf16(Stream& stream, const PackBf16Params& params);
void unpack_bf16(Stream& stream, const UnpackBf16Params& params);
}  // namespace cuda

}  // namespace train::kernels
