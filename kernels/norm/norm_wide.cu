
#include <algorithm>

#include "kernels/element.cuh"
#include "kernels/norm/norm.hpp"
#include "kernels/norm/norm_row.cuh"
#include "kernels/packed.cuh"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

/// One warp works on a row at a time.
constexpr int kRowsPerBlock = kBlockThreads / kWarpSize;

__device__ std::int64_t offset_of(const RowLayout& layout, std::int64_t row, std::int64_t inner) {
  return row / inner * layout.outer_stride + row % inner * layout.inner_stride;
}

/// Arithmetic of residual_add, one warp per row; all its lanes see the sums afterwards.
template <class T>
__device__ void add_branch(const NormResidual& residual, std::int64_t offset, std::int64_t cols,
                           int lane) {
  for (std::int64_t i = offset + lane; i < offset + cols; i += kWarpSize) {
    store<T>(residual.sum, i,
             fmaf(residual.scale, load<T>(residual.branch, i), load<T>(residual.base, i)));
  }
  __syncwarp();
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads) wide_norm_forward_kernel(NormForwardParams p) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (row >= p.outer * p.inner) {
    return;  // The whole warp returns.
  }
  const std::int64_t offset = offset_of(p.x_layout, row, p.inner);
  const T* row_x = static_cast<const T*>(p.x) + offset;
  T* y = static_cast<T*>(p.y) + offset_of(p.y_layout, row, p.inner);
  if (p.residual.branch != nullptr) {
    add_branch<T>(p.residual, offset, p.cols, lane);
  }
  const auto x = [&](std::int64_t c) { return value_of(row_x[c]); };
  const bool layer = p.kind == NormKind::layer;
  const auto n = static_cast<float>(p.cols);
  float mean = 0.0F;
  if (layer) {
    for (std::int64_t c = lane; c < p.cols; c += kWarpSize) {
      mean += x(c);
    }
    mean = warp_sum(mean) / n;
  }
  float squares = 0.0F;
  for (std::int64_t c = lane; c < p.cols; c += kWarpSize) {
    const float distance = x(c) - mean;
    squares = fmaf(distance, distance, squares);
  }
  const float rstd = 1.0F / sqrtf(warp_sum(squares) / n + p.eps);
  if (lane == 0) {
    p.rstd[row] = rstd;
    if (layer) {
      p.mean[row] = mean;
    }
  }
  const auto normalised = [&](std::int64_t c) {
    return (x(c) - mean) * rstd * (load<T>(p.weight, c) + p.gain_offset);
  };
  if (p.rotation.cos == nullptr) {
    for (std::int64_t c = lane; c < p.cols; c += kWarpSize) {
      set_value(y[c], normalised(c));
    }
    return;
  }
  const std::int64_t pairs = p.cols / 2;
  const std::int64_t entry = row / p.inner % p.rotation.seq_len * pairs;
  for (std::int64_t pair = lane; pair < pairs; pair += kWarpSize) {
    float y0 = normalised(2 * pair);
    float y1 = normalised(2 * pair + 1);
    rotate(y0, y1, p.rotation.cos[entry + pair], p.rotation.sin[entry + pair]);
    set_value(y[2 * pair], y0);
    set_value(y[2 * pair + 1], y1);
  }
}

/// partial[block, c] = sum of dy * xhat over the block's rows, in one order; a thread takes one
/// column and every kGradientRows-th row.
constexpr int kGradientRows = kBlockThreads / kWarpSize;

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    wide_weight_partial_kernel(NormBackwardParams p, float* partial, std::int64_t rows_of_block) {
  __shared__ float sums[kGradientRows][kWarpSize];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
  const std::int64_t begin = blockIdx.y * rows_of_block;
  const std::int64_t end = min(begin + rows_of_block, p.outer * p.inner);
  const bool layer = p.kind == NormKind::layer;
  float sum = 0.0F;
  if (column < p.cols) {
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kGradientRows) {
      const float x = load<T>(p.x, offset_of(p.x_layout, row, p.inner) + column);
      const float dy = load<T>(p.dy, offset_of(p.dy_layout, row, p.inner) + column);
      const float xhat = (x - (layer ? p.mean[row] : 0.0F)) * p.rstd[row];
      sum = fmaf(p.dy_scale * dy, xhat, sum);
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < p.cols) {
    for (int i = 1; i < kGradientRows; ++i) {
      sum += sums[i][threadIdx.x];
    }
    partial[blockIdx.y * p.cols + column] = sum;
  }
}

/// With g = dy * w: dx = rstd * (g - mean(g) - xhat * mean(g xhat)); mean(g) is absent in the RMS
/// norm.
template <class T>
__global__ void __launch_bounds__(kBlockThreads) wide_norm_backward_kernel(NormBackwardParams p) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (row >= p.outer * p.inner) {
    return;  // The whole warp returns.
  }
  const T* x = static_cast<const T*>(p.x) + offset_of(p.x_layout, row, p.inner);
  const T* dy = static_cast<const T*>(p.dy) + offset_of(p.dy_layout, row, p.inner);
  T* dx = static_cast<T*>(p.dx) + offset_of(p.dx_layout, row, p.inner);
  const bool layer = p.kind == NormKind::layer;
  const float mean = layer ? p.mean[row] : 0.0F;
  const float rstd = p.rstd[row];
  float g_sum = 0.0F;
  float gx_sum = 0.0F;
  for (std::int64_t c = lane; c < p.cols; c += kWarpSize) {
    const float g = p.dy_scale * value_of(dy[c]) * (load<T>(p.weight, c) + p.gain_offset);
    g_sum += g;
    gx_sum = fmaf(g, (value_of(x[c]) - mean) * rstd, gx_sum);
  }
  const auto n = static_cast<float>(p.cols);
  const float g_mean = layer ? warp_sum(g_sum) / n : 0.0F;
  const float gx_mean = warp_sum(gx_sum) / n;
  for (std::int64_t c = lane; c < p.cols; c += kWarpSize) {
    const float g = p.dy_scale * value_of(dy[c]) * (load<T>(p.weight, c) + p.gain_offset);
    const float gradient = rstd * fmaf(-((value_of(x[c]) - mean) * rstd), gx_mean, g - g_mean);
    set_value(dx[c], p.accumulate_dx ? value_of(dx[c]) + gradient : gradient);
  }
}

/// Undoes the forward rotation of dy, in place.
template <class T>
struct RotateBackEach {
  NormBackwardParams p;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t pairs = p.cols / 2;
    const std::int64_t row = i / pairs;
    const std::int64_t pair = i % pairs;
    const std::int64_t entry = row / p.inner % p.rotation.seq_len * pairs + pair;
    T* dy = static_cast<T*>(p.dx) + offset_of(p.dx_layout, row, p.inner) + 2 * pair;
    float dy0 = value_of(dy[0]);
    float dy1 = value_of(dy[1]);
    rotate(dy0, dy1, p.rotation.cos[entry], -p.rotation.sin[entry]);
    set_value(dy[0], dy0);
    set_value(dy[1], dy1);
  }
};

/// dx may be dy, so all reads of dy come first.
template <class T>
void run_backward(CudaStream& stream, const NormBackwardParams& p) {
  constexpr std::int64_t max_blocks = 256;
  constexpr std::int64_t min_rows = 16;
  const std::int64_t rows = p.outer * p.inner;
  const std::int64_t rows_of_block = std::max(min_rows, divide_up(rows, max_blocks));
  const std::int64_t blocks = divide_up(rows, rows_of_block);
  if (p.rotation.cos != nullptr) {
    launch_each(stream, rows * (p.cols / 2), RotateBackEach<T>{p});
  }
  float* partial = weight_partials(stream, blocks, p.cols);
  const Grid grid{.blocks = dim3(static_cast<unsigned>(divide_up(p.cols, kWarpSize)),
                                 static_cast<unsigned>(blocks)),
                  .threads = dim3(kWarpSize, kGradientRows)};
  launch(stream, wide_weight_partial_kernel<T>, grid, p, partial, rows_of_block);
  add_weight_partials(stream, partial, blocks, p);
  launch(stream, wide_norm_backward_kernel<T>, {.blocks = blocks_of(rows, kRowsPerBlock)}, p);
}

}  // namespace

void wide_norm_forward(CudaStream& stream, const NormForwardParams& params) {
  const Grid grid{.blocks = blocks_of(params.outer * params.inner, kRowsPerBlock)};
  for_element_type(params.dtype,
                   [&]<class T>() { launch(stream, wide_norm_forward_kernel<T>, grid, params); });
}

void wide_norm_backward(CudaStream& stream, const NormBackwardParams& params) {
  for_element_type(params.dtype, [&]<class T>() { run_backward<T>(stream, params); });
}

namespace {

/// Threads per column: each has every kPartialGroups-th block.
constexpr int kPartialGroups = 16;

__global__ void __launch_bounds__(kWarpSize* kPartialGroups)
    norm_weight_kernel(const float* partial, float* dweight, std::int64_t blocks,
                       std::int64_t cols) {
  __shared__ float sums[kPartialGroups][kWarpSize];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
  float sum = 0.0F;
  if (column < cols) {
#pragma unroll 8
    for (std::int64_t i = threadIdx.y; i < blocks; i += kPartialGroups) {
      sum += partial[i * cols + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < cols) {
#pragma unroll
    for (int i = 1; i < kPartialGroups; ++i) {
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
  if (params.dweight == nullptr) {
    return;
  }
  launch(stream, norm_weight_kernel,
         {.blocks = blocks_of(params.cols, kWarpSize), .threads = dim3(kWarpSize, kPartialGroups)},
         partial, params.dweight, blocks, params.cols);
}

}  // namespace train::kernels::cuda
