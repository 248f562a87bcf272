#include "kernels/backend.hpp"

#include <fmt/format.h>

#include "kernels/device/cuda_device.hpp"
#include "kernels/gemm/gemm_cuda.hpp"

namespace train::kernels {
namespace {

std::string cuda_kernel_set() {
  return fmt::format("cuda-{} {}", cuda_device_name(), cuda::gemm_library());
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
