#include "kernels/convert.hpp"

#include "kernels/several.cuh"

namespace train::kernels::cuda {
namespace {

/// A bf16 that is rounded as on the CPU, NaN too: it goes to other ranks.
struct ExactBf16 {
  std::uint16_t bits;
};
__device__ inline void set_value(ExactBf16& element, float value) {
  element.bits = upper_half(value);
}

/// Either way: to bf16 a value is rounded, to a float it stays what it is.
template <class From, class To>
struct ConvertEach {
  const From* in;
  To* out;
  template <int n>
  __device__ void run(std::int64_t i) const {
    const Several<From, n> from(in, i);
    Several<To, n> to;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      to.value[j] = from.value[j];
    }
    to.store(out, i);
  }
};

}  // namespace

void pack_bf16(Stream& stream, const PackBf16Params& params) {
  submit(stream, params, [](CudaStream& native, const PackBf16Params& p) {
    launch_several<8>(native, p.count, aligned_to_vectors(p.in, p.out),
                      ConvertEach<float, ExactBf16>{p.in, reinterpret_cast<ExactBf16*>(p.out)});
  });
}

void unpack_bf16(Stream& stream, const UnpackBf16Params& params) {
  submit(stream, params, [](CudaStream& native, const UnpackBf16Params& p) {
    launch_several<8>(native, p.count, aligned_to_vectors(p.in, p.out),
                      ConvertEach<Bf16, float>{reinterpret_cast<const Bf16*>(p.in), p.out});
  });
}

}  // namespace train::kernels::cuda
