#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/norm/norm.hpp"
#include "kernels/packed.cuh"
#include "kernels/reduce.cuh"

// Norm rows in registers: a team of threads holds a row between passes, so memory is read once. The
// division into teams and columns depends only on the number of columns and the type; unaligned
// data (rows, weight, rotary tables) is read element by element into the same places. So the bits
// do not depend on a row's address.
namespace train::kernels::cuda {

/// Team of `lanes` threads that hold `elements` each.
template <class T_, int lanes_, int elements_>
struct RowShape {
  using T = T_;
  static constexpr int lanes = lanes_;
  static constexpr int elements = elements_;
  static constexpr int columns = lanes * elements;
  static constexpr int width = Packed<T>::count;
  static constexpr int vectors = elements / width;
  /// Threads per block.
  static constexpr int threads = std::max(lanes, elements == 16 ? 128 : 256);
  static constexpr int teams = threads / lanes;
  static constexpr int warps = threads / kWarpSize;
};

/// Blocks per multiprocessor that leave `registers` per thread; enough of them hide memory latency.
template <class Shape>
constexpr int blocks_with_registers(int registers) {
  return std::max(1, (1 << 16) / registers / Shape::threads);
}

/// True if rows fit in registers, which depends only on the shapes. Other rows get one warp each,
/// which reads memory in each pass (norm_wide.cu): rows of more than 8192 columns, and rotated rows
/// (heads) of more than 256.
template <class Params>
bool held_in_registers(const Params& p) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  const std::int64_t most_columns = p.rotation.cos != nullptr ? 256 : 8192;
  return p.cols <= most_columns && p.inner <= most && p.rotation.seq_len <= most;
}

/// Calls with<Shape, rotated>() for the shape of rows held in registers.
template <class T, class With>
void for_row_shape(std::int64_t cols, bool rotated, const With& with) {
  const auto head = [&]<class Shape>() {
    if (rotated) {
      with.template operator()<Shape, true>();
    } else {
      with.template operator()<Shape, false>();
    }
  };
  if (cols <= 64) {
    head.template operator()<RowShape<T, 4, 16>>();
  } else if (cols <= 128) {
    head.template operator()<RowShape<T, 8, 16>>();
  } else if (cols <= 256) {
    head.template operator()<RowShape<T, 16, 16>>();
  } else if (cols <= 512) {
    with.template operator()<RowShape<T, 32, 16>, false>();
  } else if (cols <= 768) {  // 24 elements of fp32 leave too few registers for the backward pass.
    using Shape = std::conditional_t<Packed<T>::wide, RowShape<T, 64, 16>, RowShape<T, 32, 24>>;
    with.template operator()<Shape, false>();
  } else if (cols <= 1024) {
    with.template operator()<RowShape<T, 64, 16>, false>();
  } else if (cols <= 2048) {
    with.template operator()<RowShape<T, 128, 16>, false>();
  } else if (cols <= 4096) {
    with.template operator()<RowShape<T, 256, 16>, false>();
  } else {
    with.template operator()<RowShape<T, 512, 16>, false>();
  }
}

/// A thread's part of a row: every lanes-th Packed.
template <class Shape, bool aligned>
struct RowPart {
  using Vector = Packed<typename Shape::T>;
  Vector part[Shape::vectors];

  static __device__ int column(int lane, int v) { return (v * Shape::lanes + lane) * Shape::width; }
  /// Loads the row at element `offset`, with `cols` columns (0: nothing is read).
  __device__ void load(const void* data, std::int64_t offset, int lane, int cols) {
    const auto* row = static_cast<const typename Shape::T*>(data) + offset;
#pragma unroll
    for (int v = 0; v < Shape::vectors; ++v) {
      part[v].template load<aligned>(row + column(lane, v), cols - column(lane, v));
    }
  }
  __device__ void keep_packed() {
#pragma unroll
    for (Vector& vector : part) {
      vector.keep_packed();
    }
  }
  __device__ void store(void* data, std::int64_t offset, int lane, int cols) const {
    auto* row = static_cast<typename Shape::T*>(data) + offset;
#pragma unroll
    for (int v = 0; v < Shape::vectors; ++v) {
      part[v].template store<aligned>(row + column(lane, v), cols - column(lane, v));
    }
  }
};

/// Assignment of rows to blocks, and a team's step between rows; depends only on the shapes.
struct RowPlan {
  std::int64_t rows, rows_of_block;
  std::int64_t step_outer;
  int step_inner, step_position;
  float column_share;  ///< 1 / cols, which turns a sum into a mean.
  [[nodiscard]] std::int64_t blocks() const { return divide_up(rows, rows_of_block); }
};

template <class Shape, class Params>
RowPlan plan_rows(const Params& p, std::int64_t most_blocks) {
  const std::int64_t rows = p.outer * p.inner;
  const std::int64_t step = Shape::teams;
  return {.rows = rows,
          .rows_of_block = std::max(step, divide_up(divide_up(rows, most_blocks), step) * step),
          .step_outer = step / p.inner,
          .step_inner = static_cast<int>(step % p.inner),
          .step_position =
              p.rotation.cos == nullptr ? 0 : static_cast<int>(step / p.inner % p.rotation.seq_len),
          .column_share = 1.0F / static_cast<float>(p.cols)};
}

/// Iterates over a team's rows of a block; divides only for the first.
class RowWalk {
 public:
  __device__ RowWalk(std::int64_t row, std::int64_t inner, const RowRotation& rotation)
      : row_(row), outer_(row), inner_(0), position_(0) {
    if (inner != 1) {
      outer_ = row / inner;
      inner_ = static_cast<int>(row % inner);
    }
    if (rotation.cos != nullptr) {
      position_ = static_cast<int>(outer_ % rotation.seq_len);
    }
  }
  [[nodiscard]] __device__ std::int64_t row() const { return row_; }
  /// Row of the rotary tables.
  [[nodiscard]] __device__ int position() const { return position_; }
  [[nodiscard]] __device__ std::int64_t offset(const RowLayout& layout) const {
    return outer_ * layout.outer_stride + inner_ * layout.inner_stride;
  }
  template <class Shape, class Params>
  __device__ void next(const RowPlan& plan, const Params& p) {
    row_ += Shape::teams;
    outer_ += plan.step_outer;
    inner_ += plan.step_inner;
    position_ += plan.step_position;
    if (inner_ >= p.inner) {
      inner_ -= static_cast<int>(p.inner);
      ++outer_;
      ++position_;
    }
    if (position_ >= p.rotation.seq_len) {
      position_ -= static_cast<int>(p.rotation.seq_len);
    }
  }

 private:
  std::int64_t row_, outer_;
  int inner_, position_;
};

/// Sums over a team, given to all its threads. To be called by the whole block.
template <class Shape>
class TeamSum {
 public:
  /// Replaces each value by its sum.
  template <int n>
  __device__ void operator()(float (&values)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      values[i] = warp_sum<std::min(Shape::lanes, kWarpSize)>(values[i]);
    }
    if constexpr (Shape::lanes > kWarpSize) {
      over_warps(values);
    }
  }

 private:
  static constexpr int most_values = 2;

  // Two alternating buffers: a thread writes one again only after the other's barrier, before which
  // all have read it.
  template <int n>
  __device__ void over_warps(float (&values)[n]) {
    static_assert(n <= most_values);
    __shared__ float shown[2][most_values][Shape::warps];
    constexpr int warps = Shape::lanes / kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int first = warp / warps * warps;
    if (threadIdx.x % kWarpSize == 0) {
#pragma unroll
      for (int i = 0; i < n; ++i) {
        shown[turn_][i][warp] = values[i];
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < n; ++i) {
      float sum = shown[turn_][i][first];
#pragma unroll 4
      for (int w = 1; w < warps; ++w) {
        sum += shown[turn_][i][first + w];
      }
      values[i] = sum;
    }
    turn_ ^= 1;
  }

  int turn_ = 0;
};

/// Norms of rows too large for registers: one warp per row, element by element, with memory read in
/// each pass.
void wide_norm_forward(CudaStream& stream, const NormForwardParams& params);
void wide_norm_backward(CudaStream& stream, const NormBackwardParams& params);

/// Scratch for the weight gradient of `blocks` blocks: [blocks, cols], valid until the stream's
/// scratch is requested again.
float* weight_partials(CudaStream& stream, std::int64_t blocks, std::int64_t cols);

/// dweight[c] = sum of partial[block, c] over the blocks, in an order fixed by their number.
void add_weight_partials(CudaStream& stream, const float* partial, std::int64_t blocks,
                         const NormBackwardParams& params);

}  // namespace train::kernels::cuda
