#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/update_guard.hpp"
#include "kernels/reduce.cuh"
#include "kernels/tensors.cuh"

namespace train::kernels::cuda {
namespace {

/// Rows of one tensor per block.
constexpr std::int64_t kSumRows = kBlockThreads / kRowSumLanes;

/// A half warp per row: column c in the sum of thread c % 16, bitwise as on the CPU.
__global__ void __launch_bounds__(kBlockThreads)
    row_square_sums_kernel(const __grid_constant__ TensorBatch<RowSquareSumsParams::Tensor> batch) {
  std::int64_t first = 0;
  const RowSquareSumsParams::Tensor& p = batch.of_block(first);
  const std::int64_t row =
      (blockIdx.x - first) * kSumRows + static_cast<std::int64_t>(threadIdx.x) / kRowSumLanes;
  const int lane = static_cast<int>(threadIdx.x) % kRowSumLanes;
  const bool inside = row < p.rows;
  constexpr int at_once = 16;  // Elements in flight per thread.
  const float* x = p.x + row * p.cols;
  double sum = 0.0;
  for (std::int64_t begin = lane; inside && begin < p.cols; begin += at_once * kRowSumLanes) {
    float values[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const std::int64_t c = begin + i * kRowSumLanes;
      values[i] = c < p.cols ? x[c] : 0.0F;  // Zeros do not change a sum of squares.
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

constexpr int kTreeLeaves = 2 * kBlockThreads;

/// out[block] = sum of the block's kTreeLeaves values, neighbours first: whole subtrees of the
/// canonical tree, whose left parts are powers of two. 0 for no values.
__global__ void __launch_bounds__(kBlockThreads)
    tree_sum_kernel(const __grid_constant__ TensorBatch<TreeSumParams::Sum> batch) {
  __shared__ double nodes[kTreeLeaves];
  std::int64_t first_block = 0;
  const TreeSumParams::Sum& p = batch.of_block(first_block);
  const std::int64_t block = blockIdx.x - first_block;
  const std::int64_t first = block * kTreeLeaves;
  const int me = static_cast<int>(threadIdx.x);
  int left = static_cast<int>(min(p.count - first, static_cast<std::int64_t>(kTreeLeaves)));
  if (me == 0) {
    nodes[0] = 0.0;
  }
  for (int i = me; i < left; i += kBlockThreads) {
    nodes[i] = p.values[(first + i) * p.stride];
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
    p.out[block] = nodes[0];
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
  using Tensor = RowSquareSumsParams::Tensor;
  each_batch(
      p.tensors, [](const Tensor& tensor) { return divide_up(tensor.rows, kSumRows); },
      [&](const TensorBatch<Tensor>& batch, const dim3& blocks) {
        launch(stream, row_square_sums_kernel, {.blocks = blocks}, batch);
      });
}

void tree_sum(CudaStream& stream, const TreeSumParams& p) {
  using Sum = TreeSumParams::Sum;
  const auto blocks_of = [](const Sum& sum) {
    return std::max<std::int64_t>(1, divide_up(sum.count, kTreeLeaves));
  };
  // The block sums of a level are the values of the next.
  std::int64_t nodes = 0;
  for (const Sum& sum : p.sums) {
    for (std::int64_t left = sum.count; left > kTreeLeaves; left = divide_up(left, kTreeLeaves)) {
      nodes += divide_up(left, kTreeLeaves);
    }
  }
  auto* node =
      static_cast<double*>(stream.scratch(static_cast<std::size_t>(nodes) * sizeof(double)));
  for (std::vector<Sum> level = p.sums; !level.empty();) {
    std::vector<Sum> next;
    for (Sum& sum : level) {
      const std::int64_t blocks = blocks_of(sum);
      if (blocks > 1) {
        next.push_back({.values = node, .out = sum.out, .count = blocks});
        sum.out = node;
        node += blocks;
      }
    }
    each_batch(level, blocks_of, [&](const TensorBatch<Sum>& batch, const dim3& blocks) {
      launch(stream, tree_sum_kernel, {.blocks = blocks}, batch);
    });
    level = std::move(next);
  }
}

void clip_scale(CudaStream& stream, const ClipScaleParams& p) {
  launch(stream, clip_scale_kernel, {.blocks = dim3(1), .threads = dim3(1)}, p);
}

}  // namespace train::kernels::cuda
