#include "kernels/gemm/product_trial.hpp"

#include "kernels/element.cuh"
#include "kernels/launch.cuh"

namespace train::kernels::cuda {
namespace {

/// A word of which each bit depends on all of `i` (the finalizer of MurmurHash3, Appleby, public
/// domain).
__device__ std::uint32_t mixed(std::uint32_t i) {
  i ^= i >> 16U;
  i *= 0x85ebca6bU;
  i ^= i >> 13U;
  i *= 0xc2b2ae35U;
  return i ^ i >> 16U;
}

template <class T>
struct RandomEach {
  void* data;
  __device__ void operator()(std::int64_t i) const {
    const std::uint32_t bits = mixed(static_cast<std::uint32_t>(i) + 1);
    store<T>(data, i, __uint_as_float((bits & 0x807fffffU) | 0x3f000000U));
  }
};

struct DifferenceEach {
  const std::uint32_t* left;
  const std::uint32_t* right;
  std::uint32_t* differences;
  __device__ void operator()(std::int64_t i) const {
    if (left[i] != right[i]) {
      atomicAdd(differences, 1U);
    }
  }
};

}  // namespace

void fill_with_random(CudaStream& stream, void* data, std::int64_t count, DType dtype) {
  for_element_type(dtype, [&]<class T>() { launch_each(stream, count, RandomEach<T>{data}); });
}

void count_differences(CudaStream& stream, const void* left, const void* right, std::int64_t count,
                       std::uint32_t* differences) {
  launch_each(stream, count,
              DifferenceEach{static_cast<const std::uint32_t*>(left),
                             static_cast<const std::uint32_t*>(right), differences});
}

}  // namespace train::kernels::cuda
