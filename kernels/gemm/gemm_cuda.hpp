#pragma once

#include <string>

#include "kernels/device/cuda_stream.hpp"
#include "kernels/gemm/matmul.hpp"

namespace train::kernels::cuda {

/// The product that `matmul` submits, launched at once. For kernels that are made of products; from
/// submitted work alone. Throws DeviceError if the library is not there or refuses.
void gemm(CudaStream& stream, const MatmulParams& params);

/// Library and version that products come from ("cublaslt-13.0.2"). Throws DeviceError if it is not
/// there.
[[nodiscard]] std::string gemm_library();

}  // namespace train::kernels::cuda
