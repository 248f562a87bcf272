#pragma once

#include <string>

namespace train::kernels {

/// What the runtime calls a cudaError_t, in words and by its name.
[[nodiscard]] std::string cuda_reason(int status);

}  // namespace train::kernels
