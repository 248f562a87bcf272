#pragma once

#include <string>

namespace train::kernels {

/// Opens a shared library of CUDA's surroundings: by its name, as LD_LIBRARY_PATH and the system's
/// list have it, else from where toolkits are. Never closed: what it gave out must stay valid.
/// Throws DeviceError, beginning with `what`, which says where it was looked for.
[[nodiscard]] void* open_cuda_library(const std::string& name, const std::string& what);

/// Throws DeviceError.
[[nodiscard]] void* find_in_library(void* library, const char* name, const std::string& what);

}  // namespace train::kernels
