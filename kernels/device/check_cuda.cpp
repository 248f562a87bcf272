// Apart from device_cuda.cpp: who checks calls need not take all of a device along.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include "kernels/device/cuda_check.hpp"
#include "kernels/device/cuda_reason.hpp"
#include "kernels/device/device_error.hpp"

namespace train::kernels {

std::string cuda_reason(int status) {
  const auto error = static_cast<cudaError_t>(status);
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

void check_cuda(int status, const char* statement, const std::source_location& where) {
  if (status != cudaSuccess) {
    cudaGetLastError();
    throw DeviceError(fmt::format("{} ({}:{}): {}", statement, where.file_name(), where.line(),
                                  cuda_reason(status)));
  }
}

}  // namespace train::kernels
