#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/launch.cuh"

namespace train::kernels::cuda {

/// Which keys the queries of one sequence see: query `row` those from first_key(row) on, to its
/// own. first_key() does not fall from one row to the next, so what a tile of queries sees, and who
/// sees a tile of keys, is one run of rows.
struct Sight {
  const std::int32_t* positions;  ///< Of this sequence's tokens in their documents, or nullptr.
  int window;                     ///< 0: all.
  int seq_len;

  template <class Params>
  __device__ Sight(const Params& p, int sequence)
      : positions(p.positions == nullptr ? nullptr : p.positions + sequence * p.seq_len),
        window(static_cast<int>(p.window)),
        seq_len(static_cast<int>(p.seq_len)) {}

  /// Rows past the sequence: as the last one's.
  [[nodiscard]] __device__ int first_key(int row) const {
    row = min(row, seq_len - 1);
    const int of_document = positions == nullptr ? 0 : max(row - positions[row], 0);
    return window == 0 ? of_document : max(of_document, row + 1 - window);
  }

  /// One past the last query that sees `key`, which is inside the sequence. All lanes of a warp
  /// call it together: each looks at one of 32 rows that cut what is left into equal parts.
  [[nodiscard]] __device__ int end_of_queries(int key) const {
    int begin = key + 1;  // The row before sees it, and none from `end` on.
    int end = window == 0 ? seq_len : min(seq_len, key + window);
    if (positions == nullptr) {
      return end;
    }
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    while (begin < end) {
      const int step = (end - begin + warp_size - 1) / warp_size;
      const int row = begin + lane * step;
      const int seeing = __popc(__ballot_sync(all_lanes, row < end && first_key(row) <= key));
      end = seeing == 0 ? begin : min(end, begin + seeing * step);
      begin = seeing == 0 ? begin : begin + (seeing - 1) * step + 1;
    }
    return begin;
  }
};

/// Query heads that share one of keys and values. REQUIRES: resolved() params.
template <class Params>
__device__ int heads_of_group(const Params& p) {
  return static_cast<int>(p.heads) / static_cast<int>(p.kv_heads);
}

/// Whether queries see less than all keys up to their own, or scores are capped.
template <class Params>
bool limits_sight(const Params& p) {
  return p.positions != nullptr || p.window != 0 || p.softcap != 0.0F;
}

/// The same call, with nothing left to its defaults and no window that holds all.
template <class Params>
Params resolved(const Params& params) {
  Params p = params;
  p.kv_heads = p.kv_heads == 0 ? p.heads : p.kv_heads;
  p.value_dim = p.values();
  p.window = p.window >= p.seq_len ? 0 : p.window;
  return p;
}

/// Columns that a tile of any of the call's tensors has.
template <class Params>
std::int64_t widest_head(const Params& p) {
  return std::max(p.head_dim, p.values());
}

}  // namespace train::kernels::cuda
