#include "kernels/backend.hpp"

#include <fmt/format.h>

#include "base/check.hpp"
#include "kernels/all_params.hpp"
#include "kernels/device/cuda_device.hpp"
#include "kernels/device/cuda_stream.hpp"

namespace train::kernels {
namespace cuda {
namespace {

/// check_params(), and a check that attention is compiled for the head size.
template <class Params>
void check_cuda_params(const Params& params) {
  check_params(params);
  if constexpr (requires { params.values(); }) {
    TRAIN_CHECK(params.head_dim <= kMaxHeadDim && params.values() <= kMaxHeadDim,
                "attention: head_dim={} value_dim={}, at most {}", params.head_dim, params.values(),
                kMaxHeadDim);
  } else if constexpr (requires { params.cache.head_dim; }) {
    TRAIN_CHECK(params.cache.head_dim <= kMaxHeadDim && params.cache.value_dim <= kMaxHeadDim,
                "attention: a cache of head_dim={} value_dim={}, at most {}", params.cache.head_dim,
                params.cache.value_dim, kMaxHeadDim);
  }
}

}  // namespace

#define TRAIN_SUBMIT(name, Params)                              \
  void name(Stream& stream, const Params& params) {             \
    check_cuda_params(params);                                  \
    CudaStream& native = cuda_stream_of(stream);                \
    native.submit([&native, params] { name(native, params); }); \
  }
TRAIN_KERNELS(TRAIN_SUBMIT)
#undef TRAIN_SUBMIT

}  // namespace cuda
namespace {

std::string cuda_kernel_set() {
  return fmt::format("cuda-{} {} 2", cuda_device_name(), cuda::gemm_library());
}

}  // namespace

const KernelTable* cuda_backend() {
  static const KernelTable table{.name = "cuda",
                                 .device = &cuda_device(),
                                 .kernel_set = cuda_kernel_set,
#define TRAIN_KERNEL_OF_CUDA(name, Params) .name = cuda::name,
                                 TRAIN_KERNELS(TRAIN_KERNEL_OF_CUDA)
#undef TRAIN_KERNEL_OF_CUDA
  };
  return cuda_absence().empty() ? &table : nullptr;
}

}  // namespace train::kernels
