#include "kernels/bf16.cuh"
#include "kernels/convert.hpp"
#include "kernels/launch.cuh"

namespace train::kernels::cuda {
namespace {

struct PackBf16Each {
  PackBf16Params p;
  __device__ void operator()(std::int64_t i) const { p.out[i] = upper_half(p.in[i]); }
};

struct UnpackBf16Each {
  UnpackBf16Params p;
  __device__ void operator()(std::int64_t i) const { p.out[i] = from_upper_half(p.in[i]); }
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
