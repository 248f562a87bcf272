#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/device/cuda_stream.hpp"

namespace train::kernels::cuda {

/// Calls with<dim>() for the smallest compiled `dim` that holds `head_dim` columns. REQUIRES:
/// head_dim <= kMaxHeadDim.
template <class With>
void for_head_columns(std::int64_t head_dim, const With& with) {
  if (head_dim <= 64) {
    with.template operator()<64>();
  } else if (head_dim <= 128) {
    with.template operator()<128>();
  } else {
    with.template operator()<256>();
  }
}

/// The head's sink; nullptr: none.
__device__ inline const float* sink_of(const AttentionForwardParams& p, int head) {
  return p.sinks == nullptr ? nullptr : p.sinks + head;
}

/// Adds a sink's exponential to a row's sum, both relative to the larger maximum from then on.
/// Returns the factor of the row's own exponentials.
__device__ inline float take_sink(float sink, float* largest, float* sum) {
  const float above = fmaxf(*largest, sink);
  const float keep = expf(*largest - above);
  *sum = fmaf(*sum, keep, expf(sink - above));
  *largest = above;
  return keep;
}

/// attention_forward() and attention_backward() for bf16 on tensor cores, with warpgroup products
/// where possible. They launch, and do not wait. REQUIRES: checked and resolved() params, heads of
/// at most kMaxHeadDim. Throw DeviceError.
void attention_forward_mma(CudaStream& stream, const AttentionForwardParams& params);
void attention_backward_mma(CudaStream& stream, const AttentionBackwardParams& params);

/// Forward pass with warpgroup products, for heads of up to 128 columns whose rows begin at
/// multiples of 16 bytes, on devices with has_warpgroups().
void attention_forward_wgmma(CudaStream& stream, const AttentionForwardParams& params);
/// Backward pass with warpgroup products: dq, dk and dv, from an existing delta.
void attention_gradients_wgmma(CudaStream& stream, const AttentionBackwardParams& params);
constexpr std::int64_t kMostWgmmaColumns = 128;

}  // namespace train::kernels::cuda
