#include "kernels/attention/attention_tile.cuh"
#include "kernels/element.cuh"
#include "kernels/experts/expert_tiles.cuh"
#include "kernels/mma.cuh"

// Products of experts in bf16, on tensor cores with sums in fp32. A block has 128 x 128 elements of
// C, a warp 64 x 32 of them in registers; 64 of the inner dimension lie in shared memory, swizzled,
// while the next 64 are copied. Tensor cores limit it: a warp reads 6 KiB of shared memory for 32
// products of 16 x 8 x 16, so one read serves as many as in attention. Instructions are those of a
// warp; warpgroups, which multiply faster on sm_90, are not used. An expert's last tile is partly
// empty: with few places per expert, up to 127 rows of each are computed for nothing.
//
// An element is one chain over the inner dimension, 16 terms to an instruction, from the first
// on: the same for every tile, row and number of rows. Elements past an edge are zeros.
namespace train::kernels::cuda {
namespace {

constexpr int kTile = 128;  ///< Rows and columns of C.
constexpr int kInner = 64;  ///< Inner elements in shared memory at a time.
constexpr int kWarpRows = 64;
constexpr int kWarpCols = 32;
constexpr int kRowBlocks = kWarpRows / 16;
constexpr int kColBlocks = kWarpCols / 8;
constexpr int kWarpsPerRow = kTile / kWarpCols;
static_assert(kTile / kWarpRows * kWarpsPerRow * kWarpSize == kBlockThreads);
constexpr int kOperandBytes = kTile * kInner * static_cast<int>(sizeof(Bf16));
constexpr int kBufferBytes = 2 * kOperandBytes;  ///< Left and right operand.
constexpr int kSharedBytes = 2 * kBufferBytes;

using WarpSums = float[kRowBlocks][kColBlocks][4];

/// Operand in memory, rows of contiguous elements. `rows`: lines of C with the inner dimension in
/// columns (the transposed products have it in rows).
struct Source {
  const Bf16* data;
  std::int64_t stride;
  int rows, cols;  ///< Elements that are there, from `data` on.
  bool aligned;    ///< Whole chunks at multiples of 16 bytes.
};

/// Starts copying `rows` x `dim` elements to shared memory at `tile`; zeros for what is not there.
/// Chunks that are not aligned are copied at once, element by element.
template <int dim, int rows>
__device__ void copy_operand(int tile, const Source& from) {
  constexpr int chunks = dim / kChunkColumns;
  constexpr int step = kBlockThreads / chunks;  // Rows copied by all threads at a time.
  static_assert(rows % step == 0);
  const int own = static_cast<int>(threadIdx.x) / chunks;
  const int chunk = static_cast<int>(threadIdx.x) % chunks;
  const int column = chunk * kChunkColumns;
  const Bf16* data = from.data + own * from.stride + column;
  unsigned char* shared = dynamic_shared<unsigned char>() + tile;
  if (from.aligned) {
    const SharedAddress to = shared_address(shared);
#pragma unroll
    for (int i = 0; i < rows / step; ++i) {
      const int row = own + i * step;
      copy_async(to + static_cast<SharedAddress>(place_of_chunk<dim>(row, chunk)), data,
                 row < from.rows && column < from.cols);
      data += step * from.stride;
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < rows / step; ++i) {
    const int row = own + i * step;
    auto* values = reinterpret_cast<Bf16*>(shared + place_of_chunk<dim>(row, chunk));
#pragma unroll 1
    for (int c = 0; c < kChunkColumns; ++c) {
      values[c] = row < from.rows && column + c < from.cols ? data[c] : Bf16{0};
    }
    data += step * from.stride;
  }
}

/// An operand of a product: `lines` of C (rows of the left operand, columns of the right one) by
/// kInner, or, if `transposed`, with the inner dimension in rows.
template <bool transposed>
struct OperandTile {
  static constexpr int dim = transposed ? kTile : kInner;

  static __device__ void copy(int tile, const Source& from) {
    copy_operand<dim, transposed ? kInner : kTile>(tile, from);
  }
  /// `from`, kInner further on in the inner dimension.
  static __device__ void advance(Source& from) {
    if constexpr (transposed) {
      from.data += kInner * from.stride;
      from.rows -= kInner;
    } else {
      from.data += kInner;
      from.cols -= kInner;
    }
  }
  /// Address of the warp's first left operand: rows [line, line + 16) by 16 of the inner dimension.
  static __device__ SharedAddress left(int tile, int line) {
    return transposed ? moved<dim>(columns_first<dim>(tile, 0), line / 16, 0)
                      : rows_first<dim>(tile, line);
  }
  static __device__ SharedAddress right(int tile, int line) {
    return transposed ? moved<dim>(rows_first<dim>(tile, 0), line / 16, 0)
                      : columns_first<dim>(tile, line);
  }
  /// Loads the operand 16 `block` lines and 16 `k` inner elements further on.
  static __device__ void load(std::uint32_t (&part)[4], SharedAddress first, int block, int k) {
    if constexpr (transposed) {
      load_matrices_transposed(part, moved<dim>(first, block, k * 16));
    } else {
      load_matrices(part, moved<dim>(first, k, block * 16));
    }
  }
};

/// sums += left right of the operands in shared memory at `buffer`.
template <class Left, class Right>
__device__ void multiply_buffer(WarpSums& sums, int buffer) {
  const int warp = warp_index();
  const SharedAddress left = Left::left(buffer, warp / kWarpsPerRow * kWarpRows);
  const SharedAddress right = Right::right(buffer + kOperandBytes, warp % kWarpsPerRow * kWarpCols);
#pragma unroll
  for (int k = 0; k < kInner / 16; ++k) {
    std::uint32_t a[kRowBlocks][4];
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
      Left::load(a[m], left, m, k);
    }
#pragma unroll
    for (int n = 0; n < kColBlocks / 2; ++n) {
      std::uint32_t b[4];
      Right::load(b, right, n, k);
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m) {
        multiply_add(sums[m][2 * n], a[m], b[0], b[1]);
        multiply_add(sums[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// sums = left right over `inner` elements; the next buffer is copied while one is multiplied.
template <class Left, class Right>
__device__ void multiply_tile(WarpSums& sums, Source left, Source right, int inner) {
  const auto copy = [&](int buffer) {
    Left::copy(buffer, left);
    Right::copy(buffer + kOperandBytes, right);
    commit_copies();
    Left::advance(left);
    Right::advance(right);
  };
  if (inner > 0) {
    copy(0);
  }
  int buffer = 0;
  for (int first = 0; first < inner; first += kInner) {
    wait_for_copies<0>();
    __syncthreads();  // The buffer is there, and no warp reads the other one any more.
    if (first + kInner < inner) {
      copy(kBufferBytes - buffer);
    }
    multiply_buffer<Left, Right>(sums, buffer);
    buffer = kBufferBytes - buffer;
  }
}

/// Tile of C in memory, and how much of it is there.
template <class Out>
struct Target {
  Out* data;
  std::int64_t stride;
  int rows, cols;
  bool accumulate;
  bool aligned;  ///< Pairs at even columns are whole and aligned.

  /// Writes elements (row, col) and (row, col + 1), or adds to them.
  __device__ void put(int row, int col, float first, float second) const {
    if (row >= rows || col >= cols) {
      return;
    }
    struct alignas(2 * sizeof(Out)) Pair {
      Out element[2];
    };
    Out* to = data + row * stride + col;
    if (aligned) {
      auto* both = reinterpret_cast<Pair*>(to);
      Pair pair;
      if (accumulate) {
        pair = *both;
        first += value_of(pair.element[0]);
        second += value_of(pair.element[1]);
      }
      const float values[2] = {first, second};
      set_values(pair.element, values);
      *both = pair;
      return;
    }
    set_value(to[0], accumulate ? value_of(to[0]) + first : first);
    if (col + 1 < cols) {
      set_value(to[1], accumulate ? value_of(to[1]) + second : second);
    }
  }
};

template <class Out>
__device__ void store_sums(const Target<Out>& to, const WarpSums& sums) {
  const Lane lane;
  const int row = warp_index() / kWarpsPerRow * kWarpRows + lane.group;
  const int col = warp_index() % kWarpsPerRow * kWarpCols + lane.pair;
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
    for (int n = 0; n < kColBlocks; ++n) {
      to.put(row + m * 16, col + n * 8, sums[m][n][0], sums[m][n][1]);
      to.put(row + m * 16 + 8, col + n * 8, sums[m][n][2], sums[m][n][3]);
    }
  }
}

/// Which accesses may be whole: of operands in chunks of 16 bytes, of C in pairs.
struct Alignment {
  bool operands, pairs;
};

template <ExpertProduct product, class Out>
__global__ void __launch_bounds__(kBlockThreads, 2)
    expert_matmul_mma_kernel(ExpertMatmulParams p, Alignment alignment) {
  const ExpertTile tile = find_tile<product, kTile, kTile>(p);
  if (tile.expert < 0) {
    return;
  }
  constexpr bool weight = product == ExpertProduct::weight;
  constexpr bool output = product == ExpertProduct::output;
  const auto* a = static_cast<const Bf16*>(p.a);
  const auto* b = static_cast<const Bf16*>(p.b);
  const int places = tile.end_place - tile.first_place;
  const int inner = weight ? places : static_cast<int>(output ? p.k : p.n);
  const int rows = tile.end_row - tile.first_row;
  const int cols = static_cast<int>(output ? p.n : p.k) - tile.first_col;
  const bool aligned = alignment.operands;
  const Bf16* matrix = b + tile.expert * p.stride;
  const Source left =
      weight ? Source{a + tile.first_place * p.lda + tile.first_row, p.lda, places, rows, aligned}
             : Source{a + tile.first_row * p.lda, p.lda, rows, inner, aligned};
  const Source right =
      weight   ? Source{b + tile.first_place * p.ldb + tile.first_col, p.ldb, places, cols, aligned}
      : output ? Source{matrix + tile.first_col * p.ldb, p.ldb, cols, inner, aligned}
               : Source{matrix + tile.first_col, p.ldb, inner, cols, aligned};
  if (inner == 0 && p.accumulate) {
    return;
  }
  WarpSums sums = {};
  multiply_tile<OperandTile<weight>, OperandTile<!output>>(sums, left, right, inner);
  Out* c = static_cast<Out*>(p.c) + (weight ? tile.expert * p.stride : 0) + tile.first_row * p.ldc +
           tile.first_col;
  store_sums<Out>({c, p.ldc, rows, cols, p.accumulate, alignment.pairs}, sums);
}

bool multiple(std::int64_t of, std::int64_t by) { return of % by == 0; }

/// Alignment of a call, which follows from its addresses and shapes alone.
Alignment alignment_of(const ExpertMatmulParams& p) {
  const bool chunks = multiple(p.lda, kChunkColumns) && multiple(p.ldb, kChunkColumns) &&
                      multiple(p.n, kChunkColumns) && multiple(p.k, kChunkColumns) &&
                      (p.product == ExpertProduct::weight || multiple(p.stride, kChunkColumns));
  const auto pair_bytes = 2 * static_cast<std::int64_t>(size_of(p.output_dtype));
  const bool pairs =
      multiple(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(p.c)), pair_bytes) &&
      multiple(p.ldc, 2) && multiple(p.n, 2) && multiple(p.k, 2) &&
      (p.product != ExpertProduct::weight || multiple(p.stride, 2));
  return {.operands = chunks && aligned_to_vectors(p.a, p.b), .pairs = pairs};
}

}  // namespace

void expert_matmul_mma(CudaStream& stream, const ExpertMatmulParams& p) {
  const Grid grid{.blocks = tile_blocks(p, kTile, kTile), .shared_bytes = kSharedBytes};
  for_product(p.product, [&]<ExpertProduct product>() {
    for_element_type(p.output_dtype, [&]<class Out>() {
      allow_shared_bytes(expert_matmul_mma_kernel<product, Out>, grid.shared_bytes);
      launch(stream, expert_matmul_mma_kernel<product, Out>, grid, p, alignment_of(p));
    });
  });
}

}  // namespace train::kernels::cuda
