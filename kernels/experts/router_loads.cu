#include "kernels/experts/experts.hpp"
#include "kernels/experts/router_row.cuh"

// Loads of a layer's experts. A block has 64 neighbouring rows: its warps sum their scores, then
// each thread adds an expert's probabilities and choices in the order of rows, so there are no
// atomics. Exponentials limit it, two per logit; a row's slots are compared with every expert.
namespace train::kernels::cuda {
namespace {

constexpr int kChunkRows = 64;
constexpr int kLoadWarps = kBlockThreads / kWarpSize;

/// First row of the document that `row` belongs to.
__device__ std::int64_t document_of(const RouterGroupsParams& p, std::int64_t row) {
  const std::int64_t sequence = row / p.seq_len * p.seq_len;
  return p.positions == nullptr ? sequence : min(max(sequence, row - p.positions[row]), row);
}

/// Marks the documents that have a target; several rows may write the same mark.
struct MarkedDocuments {
  RouterGroupsParams p;
  std::uint8_t* trained;

  __device__ void operator()(std::int64_t row) const {
    if (p.targets[row] >= 0) {
      trained[document_of(p, row)] = 1;
    }
  }
};

struct RowGroups {
  RouterGroupsParams p;
  const std::uint8_t* trained;  ///< nullptr: all documents.

  __device__ void operator()(std::int64_t row) const {
    const std::int64_t document = document_of(p, row);
    const std::int64_t group = p.by_document ? document : 0;
    p.groups[row] =
        trained == nullptr || trained[document] != 0 ? static_cast<std::int32_t>(group) : -1;
  }
};

/// Sums of a chunk. If groups are documents, these are the sums of the document that continues from
/// the chunk before; sums of documents that begin in the chunk are added to the results at once.
struct ChunkSums {
  std::int32_t* counts;  ///< [chunks, experts].
  float* probabilities;  ///< [chunks, experts].
  std::int32_t* rows;    ///< [chunks].
  double* z_squares;     ///< [chunks].

  ChunkSums(CudaStream& stream, std::int64_t chunks, std::int64_t experts) {
    const std::int64_t size_bytes = chunks * (16 + 8 * experts);
    z_squares = static_cast<double*>(stream.scratch(static_cast<std::size_t>(size_bytes)));
    probabilities = reinterpret_cast<float*>(z_squares + chunks);
    counts = reinterpret_cast<std::int32_t*>(probabilities + chunks * experts);
    rows = counts + chunks * experts;
  }
};

/// True if the first group of a chunk continues from the chunk before. A group's rows are adjacent.
__device__ bool goes_on(const RouterLoadsParams& p, std::int64_t chunk) {
  const std::int64_t row = chunk * kChunkRows;
  return row > 0 && row < p.rows && p.groups[row] >= 0 && p.groups[row] == p.groups[row - 1];
}

/// Results of the warps for the rows of a chunk.
struct ChunkRows {
  RouterSum sums[kChunkRows];  ///< Sums of exponentials, or of sigmoids.
  double z_squares[kChunkRows];
  std::int32_t groups[kChunkRows];
};

/// Sums of one expert over neighbouring rows of one group.
struct Run {
  std::int32_t group = -1;
  std::int32_t rows = 0;
  std::int32_t count = 0;
  float probability = 0.0F;
  bool from_before = false;  ///< The group goes on from the chunk before.

  __device__ void add(const RouterLoadsParams& p, const RouterSum& sum, std::int64_t row, int e) {
    ++rows;
    const float logit = p.logits[row * p.experts + e];
    probability +=
        sum.probability(is_sigmoid(p.kind) ? router_score(logit) : router_exp(logit - sum.largest));
    for (std::int64_t i = row * p.slots; i < (row + 1) * p.slots; ++i) {
      count += p.chosen[i] == e ? 1 : 0;
    }
  }
  __device__ void write(const RouterLoadsParams& p, const ChunkSums& chunks, int e) const {
    if (group < 0 && !from_before) {
      return;
    }
    const std::int64_t at = from_before ? blockIdx.x : group;
    (from_before ? chunks.counts : p.counts)[at * p.experts + e] = count;
    (from_before ? chunks.probabilities : p.probabilities)[at * p.experts + e] = probability;
    if (e == 0) {
      (from_before ? chunks.rows : p.group_rows)[at] = rows;
    }
  }
};

/// `documents`: many groups, each of neighbouring rows; otherwise there is one.
template <bool documents>
__global__ void __launch_bounds__(kBlockThreads, 4)
    chunk_loads_kernel(RouterLoadsParams p, ChunkSums chunks) {
  __shared__ ChunkRows shared;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int experts = static_cast<int>(p.experts);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kChunkRows;
  const int rows = static_cast<int>(min(static_cast<std::int64_t>(kChunkRows), p.rows - first));
  for (int row = warp; row < rows; row += kLoadWarps) {
    const float* logits = p.logits + (first + row) * p.experts;
    RouterSum sum = sum_of_row(logits, experts, lane);
    const double lse = sum.log_sum_exp();
    if (is_sigmoid(p.kind)) {
      sum = sum_of_sigmoids(logits, experts, lane);
    }
    if (lane == 0) {
      shared.sums[row] = sum;
      shared.z_squares[row] = lse * lse;
      shared.groups[row] = p.groups == nullptr ? 0 : p.groups[first + row];
    }
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kBlockThreads) {
    Run run{.from_before = !documents || goes_on(p, blockIdx.x)};
    for (int row = 0; row < rows; ++row) {
      const std::int32_t group = shared.groups[row];
      if (documents && row > 0 && group != shared.groups[row - 1]) {
        run.write(p, chunks, e);
        run = {};
      }
      if (group >= 0) {
        run.group = group;
        run.add(p, shared.sums[row], first + row, e);
      }
    }
    run.write(p, chunks, e);
  }
  if (threadIdx.x == 0) {
    double z_square = 0.0;
    for (int row = 0; row < rows; ++row) {
      z_square += shared.groups[row] < 0 ? 0.0 : shared.z_squares[row];
    }
    chunks.z_squares[blockIdx.x] = z_square;
  }
}

/// Adds chunks [first, end) to one group's sums, in order.
__device__ void add_chunks(const RouterLoadsParams& p, const ChunkSums& chunks, std::int64_t group,
                           std::int64_t first, std::int64_t end) {
  for (int e = static_cast<int>(threadIdx.x); e < static_cast<int>(p.experts); e += kBlockThreads) {
    std::int32_t count = p.counts[group * p.experts + e];
    float probability = p.probabilities[group * p.experts + e];
#pragma unroll 8
    for (std::int64_t chunk = first; chunk < end; ++chunk) {
      count += chunks.counts[chunk * p.experts + e];
      probability += chunks.probabilities[chunk * p.experts + e];
    }
    p.counts[group * p.experts + e] = count;
    p.probabilities[group * p.experts + e] = probability;
  }
  if (threadIdx.x == 0) {
    std::int32_t rows = p.group_rows[group];
#pragma unroll 8
    for (std::int64_t chunk = first; chunk < end; ++chunk) {
      rows += chunks.rows[chunk];
    }
    p.group_rows[group] = rows;
  }
}

/// The last block adds the squares; the others, one per chunk, each add the chunks that the chunk's
/// last group goes on in, if it begins there. One group: the first block adds all chunks.
template <bool documents>
__global__ void __launch_bounds__(kBlockThreads)
    add_chunks_kernel(RouterLoadsParams p, ChunkSums chunks, std::int64_t count) {
  const std::int64_t chunk = blockIdx.x;
  if (blockIdx.x + 1 == gridDim.x) {
    if (threadIdx.x == 0) {
      double z_square = 0.0;
#pragma unroll 8
      for (std::int64_t i = 0; i < count; ++i) {
        z_square += chunks.z_squares[i];
      }
      *p.z_squares = z_square;
    }
    return;
  }
  if constexpr (!documents) {
    add_chunks(p, chunks, 0, 0, count);
    return;
  }
  if (chunk + 1 == count || !goes_on(p, chunk + 1)) {
    return;
  }
  const std::int32_t group = p.groups[(chunk + 1) * kChunkRows];
  if (goes_on(p, chunk) && p.groups[chunk * kChunkRows] == group) {
    return;  // The group began earlier.
  }
  std::int64_t end = chunk + 1;
  while (end < count && goes_on(p, end) && p.groups[end * kChunkRows] == group) {
    ++end;
  }
  add_chunks(p, chunks, group, chunk + 1, end);
}

template <class T>
void clear(CudaStream& stream, T* data, std::int64_t count) {
  if (count > 0) {
    TRAIN_CUDA_CHECK(
        cudaMemsetAsync(data, 0, static_cast<std::size_t>(count) * sizeof(T), stream.native()));
  }
}

template <bool documents>
void launch_loads(CudaStream& stream, const RouterLoadsParams& p) {
  const std::int64_t count = divide_up(p.rows, kChunkRows);
  const ChunkSums chunks(stream, std::max<std::int64_t>(count, 1), p.experts);
  launch(stream, chunk_loads_kernel<documents>, {.blocks = blocks_of(count, 1)}, p, chunks);
  launch(stream, add_chunks_kernel<documents>,
         {.blocks = blocks_of((documents ? count : std::min<std::int64_t>(count, 1)) + 1, 1)}, p,
         chunks, count);
}

}  // namespace

void router_groups(CudaStream& stream, const RouterGroupsParams& p) {
  const std::int64_t rows = p.sequences * p.seq_len;
  if (rows == 0) {
    return;
  }
  std::uint8_t* trained = nullptr;
  if (p.targets != nullptr) {
    trained = static_cast<std::uint8_t*>(stream.scratch(static_cast<std::size_t>(rows)));
    clear(stream, trained, rows);
    launch_each(stream, rows, MarkedDocuments{p, trained});
  }
  launch_each(stream, rows, RowGroups{p, trained});
}

void router_loads(CudaStream& stream, const RouterLoadsParams& p) {
  clear(stream, p.counts, p.group_count * p.experts);
  clear(stream, p.probabilities, p.group_count * p.experts);
  clear(stream, p.group_rows, p.group_count);
  if (p.group_count <= 1 || p.groups == nullptr) {
    launch_loads<false>(stream, p);
  } else {
    launch_loads<true>(stream, p);
  }
}

}  // namespace train::kernels::cuda
