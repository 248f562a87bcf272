#pragma once

#include "kernels/attention/attention.hpp"
#include "kernels/device/cuda_stream.hpp"

namespace train::kernels::cuda {

/// attention_forward() and attention_backward() of bf16, on tensor cores. They launch, and do not
/// wait. REQUIRES: checked params, head_dim of at most max_head_dim. Throw DeviceError.
void attention_forward_mma(CudaStream& stream, const AttentionForwardParams& params);
void attention_backward_mma(CudaStream& stream, const AttentionBackwardParams& params);

}  // namespace train::kernels::cuda
