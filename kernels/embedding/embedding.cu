#include "kernels/embedding/embedding.hpp"

#include <algorithm>

#include "kernels/element.cuh"
#include "kernels/embedding/row_sums.cuh"
#include "kernels/embedding/token_order.cuh"
#include "kernels/packed.cuh"

namespace train::kernels::cuda {
namespace {

/// A row with an id outside the vocabulary becomes NaN. The NaN reaches the loss and makes the
/// update non-finite; the host learns of the fault at the next host work.
template <class T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    embedding_forward_kernel(EmbeddingForwardParams p, DeviceFault* fault, const char* name) {
  using Stored = typename Several<T, n>::Stored;
  const std::int64_t row = blockIdx.x;
  const std::int32_t token = p.tokens[row];
  const bool known = token >= 0 && token < p.vocab;
  if (!known && threadIdx.x == 0) {
    report_fault(fault, name, token, row, p.vocab);
  }
  const T* from = static_cast<const T*>(p.weight) + (known ? token * p.cols : 0);
  T* to = static_cast<T*>(p.out) + row * p.cols;
  Several<T, n> unknown;
#pragma unroll
  for (int j = 0; j < n; ++j) {
    unknown.value[j] = NAN;
  }
  for (std::int64_t c = threadIdx.x * n; c < p.cols; c += blockDim.x * n) {
    if (known && p.scale == 1.0F) {
      *reinterpret_cast<Stored*>(to + c) = *reinterpret_cast<const Stored*>(from + c);
    } else if (known) {
      Several<T, n> scaled(from, c);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        scaled.value[j] *= p.scale;
      }
      scaled.store(to, c);
    } else {
      unknown.store(to, c);
    }
  }
}

/// Tokens with more rows than this are left to the kernel for frequent tokens.
constexpr int kMostRare = 64;

/// One block per place in the order. The block of a token's first place sums all of its rows unless
/// the token is frequent; other blocks return.
template <class T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    rare_rows_kernel(RowSums p, const TokenAt* ordered) {
  constexpr int at_once = 4;  // Rows in flight per thread.
  const std::int64_t first = blockIdx.x;
  const std::int32_t token = ordered[first].token;
  const bool continued = first > 0 && ordered[first - 1].token == token;
  const bool frequent = first + kMostRare < p.rows && ordered[first + kMostRare].token == token;
  if (token == p.vocab || continued || frequent) {
    return;
  }
  const T* data = static_cast<const T*>(p.data);
  float* sums = p.sums + token * p.cols;
  for (std::int64_t c = threadIdx.x * n; c < p.cols; c += blockDim.x * n) {
    Several<float, n> sum = p.accumulate ? Several<float, n>(sums, c) : zeros<n>();
    bool more = true;
    for (std::int64_t i = first; more; i += at_once) {
      Packed<T> rows[at_once];
      bool there[at_once];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const TokenAt at = ordered[min(i + u, p.rows - 1)];
        there[u] = i + u < p.rows && at.token == token;
        rows[u].template load<(n > 1)>(data + at.position * p.stride + c, there[u] ? n : 0);
      }
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        if (there[u]) {
#pragma unroll
          for (int j = 0; j < n; ++j) {
            sum.value[j] += p.scale * rows[u].value(j);
          }
        }
      }
      more = there[at_once - 1];
    }
    sum.store(sums, c);
  }
}

constexpr int kSliceColumns = 64;

/// Sums the rows of a frequent token in tiles, for a slice of the columns: all threads load the
/// next tile while one thread per column adds the current one.
template <class T, int n>
struct FrequentTile {
  static constexpr int rows = n == 1 ? 32 : 64 * static_cast<int>(sizeof(float) / sizeof(T));
  static constexpr int row_pieces = kSliceColumns / n;
  static constexpr int pieces = rows * row_pieces / kBlockThreads;  // Pieces per thread.
  TokenAt items[pieces];
  Packed<T> piece[pieces];

  [[nodiscard]] static __device__ int row_of(int k) {
    return (k * kBlockThreads + static_cast<int>(threadIdx.x)) / row_pieces;
  }

  /// Finds the tile's rows, from place `first` of the order on, one tile ahead so that load() need
  /// not wait.
  __device__ void find(const RowSums& p, const TokenAt* ordered, std::int64_t first) {
#pragma unroll
    for (int k = 0; k < pieces; ++k) {
      const std::int64_t i = first + row_of(k);
      items[k] = ordered[min(i, p.rows - 1)];
      items[k].token = i < p.rows ? items[k].token : -1;
    }
  }
  /// Loads the rows found by find() that belong to `token`.
  __device__ void load(const RowSums& p, std::int32_t token) {
    const std::int64_t slice = static_cast<std::int64_t>(blockIdx.y) * kSliceColumns;
#pragma unroll
    for (int k = 0; k < pieces; ++k) {
      const int at = k * kBlockThreads + static_cast<int>(threadIdx.x);
      const std::int64_t column = slice + at % row_pieces * n;
      const bool there = items[k].token == token && column < p.cols;
      piece[k].template load<(n > 1)>(
          static_cast<const T*>(p.data) + items[k].position * p.stride + column, there ? n : 0);
    }
  }
  __device__ void store(T* tile) const {
#pragma unroll
    for (int k = 0; k < pieces; ++k) {
      const int at = k * kBlockThreads + static_cast<int>(threadIdx.x);
      piece[k].template store<(n > 1)>(tile + at * n, n);
    }
  }
};

/// First place of the token at `place`, a multiple of kMostRare, if the token is frequent and has
/// no earlier such place; otherwise -1. Each warp computes it on its own.
__device__ inline std::int64_t first_of_frequent(const TokenAt* ordered, std::int64_t place,
                                                 const RowSums& p) {
  const std::int32_t token = ordered[place].token;
  if (token == p.vocab || (place > 0 && ordered[place - kMostRare].token == token)) {
    return -1;
  }
  std::int64_t first = place;
#pragma unroll
  for (int part = 0; part < kMostRare; part += kWarpSize) {
    const std::int64_t i = place - 1 - part - static_cast<int>(threadIdx.x) % kWarpSize;
    first -=
        __popc(__ballot_sync(kAllLanes, i >= 0 && ordered[max(i, std::int64_t{0})].token == token));
  }
  const std::int64_t beyond = first + kMostRare;
  return beyond < p.rows && ordered[beyond].token == token ? first : -1;
}

/// One block per multiple of kMostRare, of which every frequent token has one, and slice of
/// columns. Additions are in order of positions, as for rare tokens.
template <class T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    frequent_rows_kernel(RowSums p, const TokenAt* ordered) {
  using Tile = FrequentTile<T, n>;
  static_assert(Tile::rows <= kBlockThreads);
  alignas(kVectorBytes) __shared__ T tile[Tile::rows * kSliceColumns];
  __shared__ unsigned there[Tile::rows / kWarpSize];  // Bit set of the tile's rows that are loaded.
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * kMostRare;
  const std::int64_t first = first_of_frequent(ordered, place, p);
  if (first < 0) {
    return;
  }
  const int me = static_cast<int>(threadIdx.x);
  const std::int32_t token = ordered[place].token;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * kSliceColumns + me;
  const bool mine = me < kSliceColumns && column < p.cols;
  float* to = p.sums + token * p.cols + column;
  float sum = mine && p.accumulate ? *to : 0.0F;
  Tile next;
  next.find(p, ordered, first);
  next.load(p, token);
  next.find(p, ordered, first + Tile::rows);
  int count = Tile::rows;
  for (std::int64_t i = first; count == Tile::rows; i += Tile::rows) {
    next.store(tile);
    if (me < Tile::rows) {
      const bool of_token = i + me < p.rows && ordered[min(i + me, p.rows - 1)].token == token;
      const unsigned bits = __ballot_sync(kAllLanes, of_token);
      if (me % kWarpSize == 0) {
        there[me / kWarpSize] = bits;
      }
    }
    __syncthreads();
    count = 0;
#pragma unroll
    for (int word = 0; word < Tile::rows / kWarpSize; ++word) {
      count += __popc(there[word]);
    }
    if (count == Tile::rows) {
      next.load(p, token);
      next.find(p, ordered, i + 2 * Tile::rows);
    }
    if (mine) {
#pragma unroll 16
      for (int row = 0; row < count; ++row) {
        sum += p.scale * value_of(tile[row * kSliceColumns + me]);
      }
    }
    __syncthreads();  // The next tile overwrites this one.
  }
  if (mine) {
    *to = sum;
  }
}

/// Threads for rows of so many moves: whole warps, up to one block.
dim3 threads_of_row(std::int64_t moves) {
  const std::int64_t whole = divide_up(moves, kWarpSize) * kWarpSize;
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(whole, kWarpSize, kBlockThreads)));
}

/// Calls with<T, n>() for the element type and the elements that a thread moves: 16 bytes if all
/// rows are aligned to 16 bytes, otherwise one element.
template <class With>
void for_moves(DType dtype, std::int64_t cols, bool aligned, const With& with) {
  for_element_type(dtype, [&]<class T>() {
    constexpr int most = kVectorBytes / sizeof(T);
    if (aligned && cols % most == 0) {
      with.template operator()<T, most>();
    } else {
      with.template operator()<T, 1>();
    }
  });
}

}  // namespace

void embedding_forward(CudaStream& stream, const EmbeddingForwardParams& p) {
  for_moves(p.dtype, p.cols, aligned_to_vectors(p.weight, p.out), [&]<class T, int n>() {
    launch(stream, embedding_forward_kernel<T, n>,
           {.blocks = blocks_of(p.rows, 1), .threads = threads_of_row(p.cols / n)}, p,
           stream.fault(), "embedding_forward");
  });
}

void sum_rows(CudaStream& stream, const RowSums& p, const char* kernel, DeviceFault::Kind kind) {
  if (!p.accumulate && p.vocab * p.cols > 0) {
    TRAIN_CUDA_CHECK(cudaMemsetAsync(
        p.sums, 0, static_cast<std::size_t>(p.vocab * p.cols) * sizeof(float), stream.native()));
  }
  if (p.rows == 0 || p.cols == 0) {
    return;
  }
  const TokenAt* ordered = order_tokens(stream, p.tokens, p.rows, p.vocab, {kernel, kind});
  const bool aligned =
      aligned_to_vectors(p.data, p.sums) && p.stride % (kVectorBytes / size_of(p.dtype)) == 0;
  for_moves(p.dtype, p.cols, aligned, [&]<class T, int n>() {
    launch(stream, rare_rows_kernel<T, n>,
           {.blocks = blocks_of(p.rows, 1), .threads = threads_of_row(p.cols / n)}, p, ordered);
    if (p.rows > kMostRare) {
      const dim3 blocks(static_cast<unsigned>(divide_up(p.rows, kMostRare)),
                        static_cast<unsigned>(divide_up(p.cols, kSliceColumns)));
      launch(stream, frequent_rows_kernel<T, n>, {.blocks = blocks}, p, ordered);
    }
  });
}

void embedding_backward(CudaStream& stream, const EmbeddingBackwardParams& p) {
  sum_rows(stream,
           {.tokens = p.tokens,
            .data = p.dout,
            .sums = p.dweight,
            .rows = p.rows,
            .cols = p.cols,
            .vocab = p.vocab,
            .stride = p.cols,
            .accumulate = p.accumulate,
            .scale = p.scale,
            .dtype = p.dtype},
           "embedding_backward", DeviceFault::Kind::token);
}

}  // namespace train::kernels::cuda
