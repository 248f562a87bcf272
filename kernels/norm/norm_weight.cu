#include "kernels/norm/norm_weight.cuh"

#include "kernels/launch.cuh"

namespace train::kernels::cuda {
namespace {

/// Threads that share a column: each has every partial_groups-th block.
constexpr int partial_groups = 16;

__global__ void __launch_bounds__(warp_size* partial_groups)
    norm_weight_kernel(const float* partial, float* dweight, std::int64_t blocks,
                       std::int64_t cols) {
  __shared__ float sums[partial_groups][warp_size];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp_size + threadIdx.x;
  float sum = 0.0F;
  if (column < cols) {
#pragma unroll 8
    for (std::int64_t i = threadIdx.y; i < blocks; i += partial_groups) {
      sum += partial[i * cols + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < cols) {
#pragma unroll
    for (int i = 1; i < partial_groups; ++i) {
      sum += sums[i][threadIdx.x];
    }
    dweight[column] = sum;
  }
}

}  // namespace

float* weight_partials(CudaStream& stream, std::int64_t blocks, std::int64_t cols) {
  return static_cast<float*>(
      stream.scratch(static_cast<std::size_t>(blocks * cols) * sizeof(float)));
}

void add_weight_partials(CudaStream& stream, const float* partial, std::int64_t blocks,
                         const NormBackwardParams& params) {
  launch(stream, norm_weight_kernel,
         {.blocks = blocks_of(params.cols, warp_size), .threads = dim3(warp_size, partial_groups)},
         partial, params.dweight, blocks, params.cols);
}

}  // namespace train::kernels::cuda
