#pragma once

#include "kernels/device/cuda_stream.hpp"
#include "kernels/norm/norm.hpp"

namespace train::kernels::cuda {

/// Norms of rows that no team holds in registers: a warp for each, elements one by one, and memory
/// read again for each pass.
void wide_norm_forward(CudaStream& stream, const NormForwardParams& params);
void wide_norm_backward(CudaStream& stream, const NormBackwardParams& params);

}  // namespace train::kernels::cuda
