#include "kernels/element.cuh"
#include "kernels/experts/expert_tiles.cuh"

// Products of experts in fp32, by fused multiply-adds without tensor cores. An element is a sum of
// blocks of the inner dimension, each one chain in order, as on the CPU and with its bits. Shared
// memory limits it: three 16-byte reads per thread for 32 multiply-adds. Elements are copied one by
// one, without a second buffer: fp32 is the type of comparisons, bf16 that of training.
namespace train::kernels::cuda {
namespace {

constexpr int kRows = 128;
constexpr int kCols = 64;
constexpr int kDepth = 16;  ///< Inner elements in shared memory at a time.
constexpr int kThreadRows = 8;
constexpr int kThreadCols = 4;
/// Most terms of a block of the inner dimension: kGemmMaxDepth of the CPU's products.
constexpr int kMostTerms = 384;
constexpr int kThreadsPerRow = kCols / kThreadCols;
static_assert(kRows / kThreadRows * kThreadsPerRow == kBlockThreads);

struct alignas(kVectorBytes) Panels {
  float left[kDepth][kRows + 4];  // Padded against bank conflicts of transposed stores.
  float right[kDepth][kCols + 4];
};

/// Operand in memory. A line is a row of the left operand or a column of the right one; either
/// lines or the inner dimension is contiguous, and `step` lies between neighbours of the other.
struct Operand {
  const float* data;
  std::int64_t step;
  int lines;  ///< Lines of the tile that are there.
};

/// Copies inner elements [first, first + depth) of `lines` lines; zeros for lines that are not
/// there. Neighbouring threads read neighbours in memory.
template <int lines, bool inner_is_contiguous>
__device__ void load_panel(float (&panel)[kDepth][lines + 4], const Operand& from, int first,
                           int depth) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < lines * kDepth; i += kBlockThreads) {
    const int line = inner_is_contiguous ? i / kDepth : i % lines;
    const int inner = inner_is_contiguous ? i % kDepth : i / lines;
    const bool there = line < from.lines && inner < depth;
    const float* element = inner_is_contiguous ? from.data + line * from.step + (first + inner)
                                               : from.data + (first + inner) * from.step + line;
    panel[inner][line] = there ? *element : 0.0F;
  }
}

using ThreadSums = float[kThreadRows][kThreadCols];

/// sums += left right over the first `depth` inner elements of the panels, in order.
__device__ void multiply_panels(ThreadSums& sums, const Panels& panels, int depth) {
  const int row = static_cast<int>(threadIdx.x) / kThreadsPerRow * kThreadRows;
  const int col = static_cast<int>(threadIdx.x) % kThreadsPerRow * kThreadCols;
  const auto step = [&](int inner) {
    const Several<float, 4> upper(panels.left[inner], row);
    const Several<float, 4> lower(panels.left[inner], row + 4);
    const Several<float, 4> right(panels.right[inner], col);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float left = i < 4 ? upper.value[i % 4] : lower.value[i % 4];
#pragma unroll
      for (int j = 0; j < kThreadCols; ++j) {
        sums[i][j] = fmaf(left, right.value[j], sums[i][j]);
      }
    }
  };
  if (depth == kDepth) {
#pragma unroll
    for (int inner = 0; inner < kDepth; ++inner) {
      step(inner);
    }
  } else {
#pragma unroll 1
    for (int inner = 0; inner < depth; ++inner) {
      step(inner);
    }
  }
}

/// totals += left right, in blocks of the inner dimension as the CPU's (gemm_depth()).
template <bool left_contiguous, bool right_contiguous>
__device__ void multiply_tile(ThreadSums& totals, const Operand& left, const Operand& right,
                              int inner) {
  __shared__ Panels panels;
  const int blocks = max((inner + kMostTerms - 1) / kMostTerms, 1);
  const int block = (inner + blocks - 1) / blocks;
  for (int begin = 0; begin < inner; begin += block) {
    const int end = min(begin + block, inner);
    ThreadSums sums = {};
    for (int first = begin; first < end; first += kDepth) {
      const int depth = min(end - first, kDepth);
      load_panel<kRows, left_contiguous>(panels.left, left, first, depth);
      load_panel<kCols, right_contiguous>(panels.right, right, first, depth);
      __syncthreads();
      multiply_panels(sums, panels, depth);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (int j = 0; j < kThreadCols; ++j) {
        totals[i][j] += sums[i][j];
      }
    }
  }
}

/// Calls with(element, i, j) for the thread's elements inside a tile of C.
template <class T, class With>
__device__ void each_element(T* c, int rows, int cols, std::int64_t ldc, const With& with) {
  const int row = static_cast<int>(threadIdx.x) / kThreadsPerRow * kThreadRows;
  const int col = static_cast<int>(threadIdx.x) % kThreadsPerRow * kThreadCols;
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadCols; ++j) {
      if (row + i < rows && col + j < cols) {
        with(c[(row + i) * ldc + col + j], i, j);
      }
    }
  }
}

template <ExpertProduct product, class Out>
__global__ void __launch_bounds__(kBlockThreads, 2) expert_matmul_kernel(ExpertMatmulParams p) {
  const ExpertTile tile = find_tile<product, kRows, kCols>(p);
  if (tile.expert < 0) {
    return;
  }
  constexpr bool weight = product == ExpertProduct::weight;
  constexpr bool output = product == ExpertProduct::output;
  const auto* a = static_cast<const float*>(p.a);
  const auto* b = static_cast<const float*>(p.b);
  const int inner =
      weight ? tile.end_place - tile.first_place : static_cast<int>(output ? p.k : p.n);
  const int rows = tile.end_row - tile.first_row;
  const int cols = static_cast<int>(output ? p.n : p.k) - tile.first_col;
  const float* matrix = b + tile.expert * p.stride;
  const Operand left = weight ? Operand{a + tile.first_place * p.lda + tile.first_row, p.lda, rows}
                              : Operand{a + tile.first_row * p.lda, p.lda, rows};
  const Operand right = weight ? Operand{b + tile.first_place * p.ldb + tile.first_col, p.ldb, cols}
                        : output ? Operand{matrix + tile.first_col * p.ldb, p.ldb, cols}
                                 : Operand{matrix + tile.first_col, p.ldb, cols};
  Out* c = static_cast<Out*>(p.c) + (weight ? tile.expert * p.stride : 0) + tile.first_row * p.ldc +
           tile.first_col;
  // Adding to -0 leaves every value as it is, -0 too. A sum of nothing is +0.
  ThreadSums totals;
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadCols; ++j) {
      totals[i][j] = inner == 0 ? 0.0F : -0.0F;
    }
  }
  if (p.accumulate) {
    each_element(c, rows, cols, p.ldc,
                 [&](const Out& old, int i, int j) { totals[i][j] = value_of(old); });
  }
  multiply_tile<!weight, output>(totals, left, right, inner);
  each_element(c, rows, cols, p.ldc,
               [&](Out& element, int i, int j) { set_value(element, totals[i][j]); });
}

}  // namespace

void expert_matmul(CudaStream& stream, const ExpertMatmulParams& p) {
  if (p.dtype == DType::bf16) {
    expert_matmul_mma(stream, p);
    return;
  }
  const Grid grid{.blocks = tile_blocks(p, kRows, kCols)};
  for_product(p.product, [&]<ExpertProduct product>() {
    for_element_type(p.output_dtype, [&]<class Out>() {
      launch(stream, expert_matmul_kernel<product, Out>, grid, p);
    });
  });
}

}  // namespace train::kernels::cuda
