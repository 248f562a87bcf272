#pragma once

#include <cstdint>

#include "kernels/device/cuda_stream.hpp"
#include "kernels/norm/norm.hpp"

namespace train::kernels::cuda {

/// Room for what `blocks` blocks add to the gradient of the weight: [blocks, cols], until the
/// stream's scratch memory is asked for again.
float* weight_partials(CudaStream& stream, std::int64_t blocks, std::int64_t cols);

/// dweight[c] = sum of partial[block, c] over the blocks, in an order that their number fixes.
void add_weight_partials(CudaStream& stream, const float* partial, std::int64_t blocks,
                         const NormBackwardParams& params);

}  // namespace train::kernels::cuda
