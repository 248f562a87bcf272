#pragma once

#include <source_location>
#include <string>

namespace train::kernels {

/// What the driver says of `status` (a cudaError_t), and its name.
[[nodiscard]] std::string cuda_reason(int status);

/// Throws DeviceError with statement, place and the driver's reason unless `status` (a cudaError_t)
/// is success, and clears what the runtime remembers of it. Never blocks.
void check_cuda(int status, const char* statement, const std::source_location& where);

}  // namespace train::kernels

#define TRAIN_CUDA_CHECK(statement) \
  ::train::kernels::check_cuda((statement), #statement, ::std::source_location::current())
