#include "kernels/bf16.cuh"
#include "kernels/convert.hpp"
#include "kernels/launch.cuh"

namespace train::kernels::cuda {
namespace {

struct PackBf16Each {
  PackBf16Params p;
  __device__ void operator()(std::int64_t i) const {
    constexpr std::uint32_t quiet_bit = 0x00400000U;
    const float value = p.in[i];
    const std::uint32_t bits = __float_as_uint(value);
    const std::uint32_t rounded = isnan(value) ? bits | quiet_bit : rounded_to_upper_half(bits);
    p.out[i] = static_cast<std::uint16_t>(rounded >> 16U);
  }
};

struct UnpackBf16Each {
  UnpackBf16Params p;
  __device__ void operator()(std::int64_t i) const {
    p.out[i] = __uint_as_float(static_cast<std::uint32_t>(p.in[i]) << 16U);
  }
};

}  // namespace

void pack_bf16(Stream& stream, const PackBf16Params& params) {
  submit(stream, params, [](CudaStream& native, const PackBf16Params& p) {
    launch_each(native, p.count, PackBf16Each{p});
  });
}

void unpack_bf16(Stream& stream, const UnpackBf16Params& params) {
  submit(stream, params, [](CudaStream& native, const UnpackBf16Params& p) {
    launch_each(native, p.count, UnpackBf16Each{p});
  });
}

}  // namespace train::kernels::cuda
