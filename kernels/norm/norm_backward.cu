#include "kernels/norm/norm.hpp"
#include "kernels/norm/norm_row.cuh"
#include "kernels/packed.cuh"

namespace train::kernels::cuda {
namespace {

/// A thread's part of a row: x, the old dx if it is accumulated into, and g = dy * w.
template <class Shape, bool aligned>
struct BackwardRow {
  RowPart<Shape, aligned> x, before;
  float g[Shape::elements];
  float mean = 0.0F, rstd = 0.0F;
};

/// True if a block has registers to read dx before the sums are known.
template <class Shape>
constexpr bool kEarly = Shape::lanes < 512;

/// Reads a row, adds dy * xhat to `dweight`, and computes the thread's sums of g and g * xhat.
/// Zeros beyond the row's columns.
template <bool rotated, class Shape, bool aligned>
__device__ void begin_row(const NormBackwardParams& p, const RowWalk& walk, int lane, int cols,
                          BackwardRow<Shape, aligned>& row, float (&dweight)[Shape::elements],
                          float (&sums)[2]) {
  using Part = RowPart<Shape, aligned>;
  Part dy;
  row.x.load(p.x, walk.offset(p.x_layout), lane, cols);
  dy.load(p.dy, walk.offset(p.dy_layout), lane, cols);
  if (!rotated && kEarly<Shape> && p.accumulate_dx) {
    row.before.load(p.dx, walk.offset(p.dx_layout), lane, cols);
  }
  if (cols > 0) {
    row.rstd = p.rstd[walk.row()];
    row.mean = p.kind == NormKind::layer ? p.mean[walk.row()] : 0.0F;
  }
  Part weight;
  weight.load(p.weight, 0, lane, cols);
  const std::int64_t entry = walk.position() * (p.cols / 2);
  sums[0] = sums[1] = 0.0F;
#pragma unroll
  for (int v = 0; v < Shape::vectors; ++v) {
    PackedAngles<typename Shape::T> angles;
    if constexpr (rotated) {
      const int column = Part::column(lane, v);
      angles.template load<aligned>(p.rotation.cos, p.rotation.sin, entry + column / 2,
                                    (cols - column) / 2);
    }
#pragma unroll
    for (int i = 0; i < Shape::width; i += 2) {
      float d[] = {dy.part[v].value(i), dy.part[v].value(i + 1)};
      if constexpr (rotated) {
        rotate(d[0], d[1], angles.cos.entry[i / 2], -angles.sin.entry[i / 2]);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int e = v * Shape::width + i + j;
        const float xhat = (row.x.part[v].value(i + j) - row.mean) * row.rstd;
        const float scaled = p.dy_scale * d[j];
        dweight[e] = fmaf(scaled, xhat, dweight[e]);
        row.g[e] = scaled * (weight.part[v].value(i + j) + p.gain_offset);
        sums[0] += row.g[e];
        sums[1] = fmaf(row.g[e], xhat, sums[1]);
      }
    }
  }
}

/// dx = rstd * (g - mean(g) - xhat * mean(g xhat)); mean(g) is 0 for the RMS norm. Overwrites x.
template <bool rotated, class Shape, bool aligned>
__device__ void finish_row(const NormBackwardParams& p, BackwardRow<Shape, aligned>& row,
                           float g_mean, float gx_mean) {
#pragma unroll
  for (int v = 0; v < Shape::vectors; ++v) {
#pragma unroll
    for (int i = 0; i < Shape::width; i += 2) {
      float dx[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float xhat = (row.x.part[v].value(i + j) - row.mean) * row.rstd;
        dx[j] = row.rstd * fmaf(-xhat, gx_mean, row.g[v * Shape::width + i + j] - g_mean);
        if (!rotated && p.accumulate_dx) {
          dx[j] = row.before.part[v].value(i + j) + dx[j];
        }
      }
      row.x.part[v].set_pair(i, dx[0], dx[1]);
    }
  }
}

/// Adds the teams' sums and writes the block's to partial[cols]: over the teams of a warp, then
/// over warps in order.
template <class Shape>
__device__ void write_partial(float (&dweight)[Shape::elements], float* partial, int cols) {
  using Four = typename Several<float, 4>::Stored;
  constexpr int lanes = std::max(Shape::lanes, kWarpSize);
  constexpr int groups = Shape::threads / lanes;
#pragma unroll
  for (int offset = Shape::lanes; offset < kWarpSize; offset *= 2) {
#pragma unroll
    for (int e = 0; e < Shape::elements; ++e) {
      dweight[e] += __shfl_xor_sync(kAllLanes, dweight[e], offset);
    }
  }
  __shared__ Four sums[groups][Shape::columns / 4];
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes;
  if (lane < Shape::lanes) {
#pragma unroll
    for (int e = 0; e < Shape::elements; e += 4) {
      const int column = RowPart<Shape, true>::column(lane, e / Shape::width) + e % Shape::width;
      sums[group][column / 4] = {{dweight[e], dweight[e + 1], dweight[e + 2], dweight[e + 3]}};
    }
  }
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < cols; column += Shape::threads) {
    float sum = sums[0][column / 4].element[column % 4];
#pragma unroll
    for (int i = 1; i < groups; ++i) {
      sum += sums[i][column / 4].element[column % 4];
    }
    partial[column] = sum;
  }
}

/// Registers of a thread: its part of a row, and the sums of its columns.
template <class Shape>
constexpr int kBackwardRegisters =
    Packed<typename Shape::T>::wide || Shape::elements > 16 || !kEarly<Shape> ? 128 : 80;

/// Largest number of blocks: about what 132 multiprocessors run at once, or twice that.
template <class Shape>
constexpr std::int64_t kMostBackwardBlocks = kBackwardRegisters<Shape> == 80 ? 768 : 512;

/// x, dy and, if accumulated into, dx are read once, and dx is written once. A thread keeps the
/// weight gradient of its columns from row to row.
template <class Shape, bool aligned, bool rotated>
__global__ void __launch_bounds__(Shape::threads,
                                  blocks_with_registers<Shape>(aligned ? kBackwardRegisters<Shape>
                                                                       : 255))
    norm_backward_kernel(NormBackwardParams p, RowPlan plan, float* partial) {
  const int lane = static_cast<int>(threadIdx.x) % Shape::lanes;
  const int team = static_cast<int>(threadIdx.x) / Shape::lanes;
  float dweight[Shape::elements] = {};
  TeamSum<Shape> add_up;
  const std::int64_t begin = blockIdx.x * plan.rows_of_block;
  const std::int64_t end = min(begin + plan.rows_of_block, plan.rows);
  RowWalk walk(begin + team, p.inner, p.rotation);
  for (std::int64_t first = begin; first < end; first += Shape::teams) {
    // A team without a row still takes part in its warp's operations.
    const int cols = walk.row() < end ? static_cast<int>(p.cols) : 0;
    BackwardRow<Shape, aligned> row;
    float sums[2];
    begin_row<rotated>(p, walk, lane, cols, row, dweight, sums);
    add_up(sums);
    row.x.keep_packed();
    if (!rotated && !kEarly<Shape> && p.accumulate_dx) {
      row.before.load(p.dx, walk.offset(p.dx_layout), lane, cols);
    }
    finish_row<rotated>(p, row, p.kind == NormKind::layer ? sums[0] * plan.column_share : 0.0F,
                        sums[1] * plan.column_share);
    row.x.store(p.dx, walk.offset(p.dx_layout), lane, cols);
    walk.template next<Shape>(plan, p);
  }
  write_partial<Shape>(dweight, partial + blockIdx.x * p.cols, static_cast<int>(p.cols));
}

template <class T>
bool whole_vectors(const NormBackwardParams& p) {
  return p.cols % Packed<T>::count == 0 && aligned_rows<T>(p.x_layout) &&
         aligned_rows<T>(p.dy_layout) && aligned_rows<T>(p.dx_layout) &&
         aligned_to_vectors(p.x, p.weight, p.dy, p.dx, p.rotation.cos, p.rotation.sin);
}

template <class T>
void run_backward(CudaStream& stream, const NormBackwardParams& p) {
  for_row_shape<T>(p.cols, p.rotation.cos != nullptr, [&]<class Shape, bool rotated>() {
    const RowPlan plan = plan_rows<Shape>(p, kMostBackwardBlocks<Shape>);
    const std::int64_t blocks = plan.blocks();
    float* partial = weight_partials(stream, blocks, p.cols);
    launch(stream,
           whole_vectors<T>(p) ? norm_backward_kernel<Shape, true, rotated>
                               : norm_backward_kernel<Shape, false, rotated>,
           {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(Shape::threads)}, p,
           plan, partial);
    add_weight_partials(stream, partial, blocks, p);
  });
}

}  // namespace

void norm_backward(CudaStream& stream, const NormBackwardParams& p) {
  if (!held_in_registers(p)) {
    wide_norm_backward(stream, p);
    return;
  }
  for_element_type(p.dtype, [&]<class T>() { run_backward<T>(stream, p); });
}

}  // namespace train::kernels::cuda
