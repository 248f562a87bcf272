#include <utility>

#include "kernels/optimizer/global_norm.hpp"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

/// A half warp takes a row: column c in the sum of thread c % 16, as on the CPU, bitwise.
__global__ void __launch_bounds__(block_threads) row_square_sums_kernel(RowSquareSumsParams p) {
  const std::int64_t row = thread_index() / row_sum_lanes;
  const int lane = static_cast<int>(threadIdx.x) % row_sum_lanes;
  const bool inside = row < p.rows;
  constexpr int at_once = 16;  // Elements on their way to a thread.
  const float* x = p.x + row * p.cols;
  double sum = 0.0;
  for (std::int64_t begin = lane; inside && begin < p.cols; begin += at_once * row_sum_lanes) {
    float values[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const std::int64_t c = begin + i * row_sum_lanes;
      values[i] = c < p.cols ? x[c] : 0.0F;  // Which changes no sum of squares.
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const double value = values[i];
      sum = fma(value, value, sum);  // The square of a float is exact in double.
    }
  }
  sum = fold_row_sum(sum);
  if (inside && lane == 0) {
    p.row_sums[row] = sum;
  }
}

constexpr int tree_leaves = 2 * block_threads;

/// out[block] = sum of the block's tree_leaves values, neighbours first: whole subtrees of the
/// canonical tree, whose left parts are powers of two.
__global__ void __launch_bounds__(block_threads)
    tree_sum_kernel(const double* values, std::int64_t stride, std::int64_t count, double* out) {
  __shared__ double nodes[tree_leaves];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * tree_leaves;
  const int me = static_cast<int>(threadIdx.x);
  int left = static_cast<int>(min(count - first, static_cast<std::int64_t>(tree_leaves)));
  for (int i = me; i < left; i += block_threads) {
    nodes[i] = values[(first + i) * stride];
  }
  while (left > 1) {
    __syncthreads();
    const int pair = 2 * me;
    double node = pair < left ? nodes[pair] : 0.0;
    if (pair + 1 < left) {
      node += nodes[pair + 1];
    }
    __syncthreads();
    left = (left + 1) / 2;
    if (me < left) {
      nodes[me] = node;
    }
  }
  __syncthreads();
  if (me == 0) {
    out[blockIdx.x] = nodes[0];
  }
}

__global__ void clip_scale_kernel(ClipScaleParams p) {
  const double norm = sqrt(*p.squared_norm);
  UpdateGuard& guard = *p.guard;
  guard.loss = p.loss_scale * *p.cross_entropy + p.z_scale * *p.z_squared;
  guard.grad_norm = static_cast<float>(norm);
  const double clip = p.clip;
  guard.grad_scale = clip > 0.0 ? static_cast<float>(fmin(1.0, clip / (norm + 1e-6))) : 1.0F;
  if (!isfinite(norm) || !isfinite(guard.loss)) {
    guard.nonfinite = 1;
  }
}

}  // namespace

void row_square_sums(CudaStream& stream, const RowSquareSumsParams& p) {
  launch(stream, row_square_sums_kernel,
         {.blocks = blocks_of(p.rows * row_sum_lanes, block_threads)}, p);
}

void tree_sum(CudaStream& stream, const TreeSumParams& p) {
  if (p.count == 0) {
    TRAIN_CUDA_CHECK(cudaMemsetAsync(p.out, 0, sizeof(double), stream.native()));
    return;
  }
  const std::int64_t blocks = divide_up(p.count, tree_leaves);
  auto* level =
      static_cast<double*>(stream.scratch(static_cast<std::size_t>(2 * blocks) * sizeof(double)));
  double* next = level + blocks;
  const double* values = p.values;
  std::int64_t stride = p.stride;
  std::int64_t count = p.count;
  while (true) {
    const std::int64_t sums = divide_up(count, tree_leaves);
    double* out = sums == 1 ? p.out : level;
    launch(stream, tree_sum_kernel, {.blocks = dim3(static_cast<unsigned>(sums))}, values, stride,
           count, out);
    if (sums == 1) {
      return;
    }
    values = out;
    stride = 1;
    count = sums;
    std::swap(level, next);
  }
}

void clip_scale(CudaStream& stream, const ClipScaleParams& p) {
  launch(stream, clip_scale_kernel, {.blocks = dim3(1), .threads = dim3(1)}, p);
}

}  // namespace train::kernels::cuda
