#include "kernels/norm/norm.hpp"
#include "kernels/norm/norm_row.cuh"
#include "kernels/packed.cuh"

namespace train::kernels::cuda {
namespace {

/// Loads x or, with a residual branch, computes and writes the rounded sum; later steps see the
/// rounded values.
template <class Shape, bool aligned>
__device__ RowPart<Shape, aligned> load_input(const NormForwardParams& p, std::int64_t offset,
                                              int lane, int cols) {
  RowPart<Shape, aligned> x;
  if (p.residual.branch == nullptr) {
    x.load(p.x, offset, lane, cols);
    return x;
  }
  RowPart<Shape, aligned> branch;
  x.load(p.residual.base, offset, lane, cols);
  branch.load(p.residual.branch, offset, lane, cols);
#pragma unroll
  for (int v = 0; v < Shape::vectors; ++v) {
#pragma unroll
    for (int i = 0; i < Shape::width; i += 2) {
      x.part[v].set_pair(
          i, fmaf(p.residual.scale, branch.part[v].value(i), x.part[v].value(i)),
          fmaf(p.residual.scale, branch.part[v].value(i + 1), x.part[v].value(i + 1)));
    }
  }
  x.store(p.residual.sum, offset, lane, cols);
  return x;
}

/// Sum over the thread's columns of f(sum, x), one after the other.
template <class Shape, bool aligned, class F>
__device__ float sum_of_part(const RowPart<Shape, aligned>& x, int lane, int cols, const F& f) {
  float sum = 0.0F;
#pragma unroll
  for (int v = 0; v < Shape::vectors; ++v) {
    const int inside = cols - RowPart<Shape, aligned>::column(lane, v);
    float with_vector = sum;
#pragma unroll
    for (int i = 0; i < Shape::width; ++i) {
      if (aligned || i < inside) {
        with_vector = f(with_vector, x.part[v].value(i));
      }
    }
    sum = inside > 0 ? with_vector : sum;
  }
  return sum;
}

/// Replaces x by y.
template <bool rotated, class Shape, bool aligned>
__device__ void normalise(const NormForwardParams& p, RowPart<Shape, aligned>& x,
                          const RowPart<Shape, aligned>& weight, float mean, float rstd, int lane,
                          int cols, int position) {
  const std::int64_t entry = position * (p.cols / 2);
#pragma unroll
  for (int v = 0; v < Shape::vectors; ++v) {
    const int column = RowPart<Shape, aligned>::column(lane, v);
    PackedAngles<typename Shape::T> angles;
    if constexpr (rotated) {
      angles.template load<aligned>(p.rotation.cos, p.rotation.sin, entry + column / 2,
                                    (cols - column) / 2);
    }
#pragma unroll
    for (int i = 0; i < Shape::width; i += 2) {
      float y0 = (x.part[v].value(i) - mean) * rstd * (weight.part[v].value(i) + p.gain_offset);
      float y1 =
          (x.part[v].value(i + 1) - mean) * rstd * (weight.part[v].value(i + 1) + p.gain_offset);
      if constexpr (rotated) {
        rotate(y0, y1, angles.cos.entry[i / 2], angles.sin.entry[i / 2]);
      }
      x.part[v].set_pair(i, y0, y1);
    }
  }
}

/// Registers of a thread.
template <class Shape, bool aligned>
constexpr int kForwardRegisters = aligned && !Packed<typename Shape::T>::wide ? 64 : 128;

template <class Shape, bool aligned, bool rotated>
__global__ void __launch_bounds__(Shape::threads,
                                  blocks_with_registers<Shape>(kForwardRegisters<Shape, aligned>))
    norm_forward_kernel(NormForwardParams p, RowPlan plan) {
  const int lane = static_cast<int>(threadIdx.x) % Shape::lanes;
  const int team = static_cast<int>(threadIdx.x) / Shape::lanes;
  const bool layer = p.kind == NormKind::layer;
  TeamSum<Shape> add_up;
  const std::int64_t begin = blockIdx.x * plan.rows_of_block;
  const std::int64_t end = min(begin + plan.rows_of_block, plan.rows);
  RowWalk walk(begin + team, p.inner, p.rotation);
  for (std::int64_t first = begin; first < end; first += Shape::teams) {
    // A team without a row still takes part in its warp's operations.
    const int cols = walk.row() < end ? static_cast<int>(p.cols) : 0;
    RowPart<Shape, aligned> x = load_input<Shape, aligned>(p, walk.offset(p.x_layout), lane, cols);
    RowPart<Shape, aligned> weight;
    weight.load(p.weight, 0, lane, cols);
    float mean = 0.0F;
    if (layer) {
      float sums[] = {
          sum_of_part(x, lane, cols, [](float sum, float value) { return sum + value; })};
      add_up(sums);
      mean = sums[0] * plan.column_share;
    }
    float squares[] = {sum_of_part(x, lane, cols, [mean](float sum, float value) {
      return fmaf(value - mean, value - mean, sum);
    })};
    add_up(squares);
    const float rstd = 1.0F / sqrtf(squares[0] * plan.column_share + p.eps);
    if (lane == 0 && cols > 0) {
      p.rstd[walk.row()] = rstd;
      if (layer) {
        p.mean[walk.row()] = mean;
      }
    }
    normalise<rotated>(p, x, weight, mean, rstd, lane, cols, walk.position());
    x.store(p.y, walk.offset(p.y_layout), lane, cols);
    walk.template next<Shape>(plan, p);
  }
}

template <class T>
bool whole_vectors(const NormForwardParams& p) {
  const NormResidual& r = p.residual;
  return p.cols % Packed<T>::count == 0 && aligned_rows<T>(p.x_layout) &&
         aligned_rows<T>(p.y_layout) &&
         aligned_to_vectors(p.x, p.weight, p.y, r.base, r.branch, r.sum, p.rotation.cos,
                            p.rotation.sin);
}

template <class T>
void run_forward(CudaStream& stream, const NormForwardParams& p) {
  // About what 132 multiprocessors run at once, or twice that.
  constexpr std::int64_t most_blocks = 1024;
  for_row_shape<T>(p.cols, p.rotation.cos != nullptr, [&]<class Shape, bool rotated>() {
    const RowPlan plan = plan_rows<Shape>(p, most_blocks);
    const Grid grid{.blocks = dim3(static_cast<unsigned>(plan.blocks())),
                    .threads = dim3(Shape::threads)};
    launch(stream,
           whole_vectors<T>(p) ? norm_forward_kernel<Shape, true, rotated>
                               : norm_forward_kernel<Shape, false, rotated>,
           grid, p, plan);
  });
}

}  // namespace

void norm_forward(CudaStream& stream, const NormForwardParams& p) {
  if (!held_in_registers(p)) {
    wide_norm_forward(stream, p);
    return;
  }
  for_element_type(p.dtype, [&]<class T>() { run_forward<T>(stream, p); });
}

}  // namespace train::kernels::cuda
