#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

#include "kernels/launch.cuh"

// Sorts positions by token, stably: a least-significant-digit radix sort. Two passes for
// vocabularies below 2^18: four kernels of a few microseconds at 32768 rows. Comparing all pairs of
// positions would take 10^9 comparisons there, of which a device makes 10^13 a second, and sixteen
// times as many at 131072 rows.
namespace train::kernels::cuda {

/// Position with its token. An unknown token is replaced by the vocabulary's size, so that it sorts
/// last.
struct alignas(8) TokenAt {
  std::int32_t token;
  std::int32_t position;
};

constexpr int kDigitBits = 9;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kOrderThreads = kDigits;  // One thread per digit.
constexpr int kOrderWarps = kOrderThreads / kWarpSize;
constexpr int kWarpRounds = 4;  // A warp handles four times 32 neighbours, so a block 2048.
constexpr int kOrderChunk = kOrderThreads * kWarpRounds;

/// One pass from `in` (or, in the first, from `tokens`) to `out`.
struct OrderPass {
  const std::int32_t* tokens = nullptr;
  const TokenAt* in = nullptr;  ///< Null in the first pass.
  TokenAt* out = nullptr;
  std::int32_t* counts = nullptr;  ///< [blocks, digits]: count of each digit in a block's chunk.
  std::int64_t rows = 0, vocab = 0;
  int shift = 0;

  [[nodiscard]] __device__ TokenAt at(std::int64_t i) const {
    if (in != nullptr) {
      return in[i];
    }
    const std::int32_t token = tokens[i];
    const bool known = token >= 0 && token < vocab;
    return {known ? token : static_cast<std::int32_t>(vocab), static_cast<std::int32_t>(i)};
  }
  [[nodiscard]] __device__ int digit_of(std::int32_t token) const {
    return (token >> shift) & (kDigits - 1);
  }
};

/// Fault kind and kernel name under which unknown tokens are reported.
struct UnknownToken {
  const char* kernel;
  DeviceFault::Kind kind;
};

/// The first pass reports unknown tokens.
inline __global__ void __launch_bounds__(kOrderThreads)
    digit_counts_kernel(OrderPass pass, DeviceFault* fault, UnknownToken unknown) {
  __shared__ unsigned count[kDigits];
  const int me = static_cast<int>(threadIdx.x);
  count[me] = 0;
  __syncthreads();
  for (int round = 0; round < kWarpRounds; ++round) {
    const std::int64_t i =
        static_cast<std::int64_t>(blockIdx.x) * kOrderChunk + round * kOrderThreads + me;
    if (i < pass.rows) {
      const TokenAt item = pass.at(i);
      atomicAdd(&count[pass.digit_of(item.token)], 1U);  // Any order gives the same.
      if (pass.in == nullptr && item.token == pass.vocab) {
        report_fault(fault, unknown.kernel, pass.tokens[i], i, pass.vocab, unknown.kind);
      }
    }
  }
  __syncthreads();
  pass.counts[static_cast<std::int64_t>(blockIdx.x) * kDigits + me] =
      static_cast<std::int32_t>(count[me]);
}

/// Destination of the block's first item with digit `me`: after all smaller digits, and after the
/// same digit of earlier blocks. `sums` is shared memory.
__device__ inline int first_place(const OrderPass& pass, int me, int* sums) {
  int before = 0;
  int total = 0;
#pragma unroll 8
  for (unsigned block = 0; block < gridDim.x; ++block) {
    const int count = pass.counts[static_cast<std::int64_t>(block) * kDigits + me];
    before += block < blockIdx.x ? count : 0;
    total += count;
  }
  sums[me] = total;
  __syncthreads();
  for (int distance = 1; distance < kDigits; distance *= 2) {
    const int left = me >= distance ? sums[me - distance] : 0;
    __syncthreads();
    sums[me] += left;
    __syncthreads();
  }
  return sums[me] - total + before;
}

/// Each warp numbers its own items of each digit; the counts of earlier warps are added.
inline __global__ void __launch_bounds__(kOrderThreads) place_kernel(OrderPass pass) {
  __shared__ int seen[kOrderWarps][kDigits];
  __shared__ int place[kDigits];
  const int me = static_cast<int>(threadIdx.x);
  const int warp = me / kWarpSize;
  const int lane = me % kWarpSize;
  for (int w = 0; w < kOrderWarps; ++w) {
    seen[w][me] = 0;
  }
  __syncthreads();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kOrderChunk +
                             warp * (kOrderChunk / kOrderWarps) + lane;
  TokenAt items[kWarpRounds];
  int ranks[kWarpRounds];
#pragma unroll
  for (int round = 0; round < kWarpRounds; ++round) {
    const std::int64_t i = first + round * kWarpSize;
    items[round] = i < pass.rows ? pass.at(i) : TokenAt{};
  }
#pragma unroll
  for (int round = 0; round < kWarpRounds; ++round) {
    const bool inside = first + round * kWarpSize < pass.rows;
    const int digit = pass.digit_of(items[round].token);
    const unsigned same = __match_any_sync(kAllLanes, inside ? digit : kDigits);
    const int before = seen[warp][digit];
    __syncwarp();  // All lanes have read it.
    const unsigned left = same & ((1U << static_cast<unsigned>(lane)) - 1U);
    ranks[round] = before + __popc(left);
    if (inside && left == 0) {
      seen[warp][digit] = before + __popc(same);
    }
    __syncwarp();
  }
  const int mine = first_place(pass, me, place);  // Its barriers make the warps' counts visible.
  int sum = 0;
  for (int w = 0; w < kOrderWarps; ++w) {
    const int of_warp = seen[w][me];
    seen[w][me] = sum;
    sum += of_warp;
  }
  __syncthreads();
  place[me] = mine;
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kWarpRounds; ++round) {
    if (first + round * kWarpSize < pass.rows) {
      const int digit = pass.digit_of(items[round].token);
      pass.out[place[digit] + seen[warp][digit] + ranks[round]] = items[round];
    }
  }
}

/// Returns the sorted positions of `tokens` [rows], in the stream's scratch memory. REQUIRES: rows
/// > 0.
inline const TokenAt* order_tokens(CudaStream& stream, const std::int32_t* tokens,
                                   std::int64_t rows, std::int64_t vocab,
                                   const UnknownToken& unknown) {
  const std::int64_t blocks = divide_up(rows, kOrderChunk);
  const auto items_bytes = static_cast<std::size_t>(rows) * sizeof(TokenAt);
  const auto counts_bytes = static_cast<std::size_t>(blocks * kDigits) * sizeof(std::int32_t);
  auto* memory = static_cast<TokenAt*>(stream.scratch(2 * items_bytes + counts_bytes));
  TokenAt* const buffers[] = {memory, memory + rows};
  auto* counts = reinterpret_cast<std::int32_t*>(memory + 2 * rows);
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(vocab)));
  const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(kOrderThreads)};
  OrderPass pass{.tokens = tokens, .counts = counts, .rows = rows, .vocab = vocab};
  for (; pass.shift < bits; pass.shift += kDigitBits) {
    pass.in = pass.out;
    pass.out = buffers[pass.shift / kDigitBits % 2];
    launch(stream, digit_counts_kernel, grid, pass, stream.fault(), unknown);
    launch(stream, place_kernel, grid, pass);
  }
  return pass.out;
}

}  // namespace train::kernels::cuda
