#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "kernels/dtype.hpp"
#include "kernels/launch.cuh"

namespace train::kernels::cuda {

/// Visibility of keys to the queries of one sequence: query `row` sees keys first_key(row) to
/// `row`, besides hides(), which a prefix alone makes. first_key() is monotonic, so the keys seen
/// by a tile of queries, and the queries that see a tile of keys, are one run of rows.
struct Sight {
  const std::int32_t* positions;  ///< Positions of this sequence's tokens in their documents, or
                                  ///< nullptr.
  int window;                     ///< Window size; 0: all keys, or hides() tells.
  int seq_len;
  int prefix, hiding;  ///< Keys before a window of `hiding` that stay visible; 0: none.

  template <class Params>
  __device__ Sight(const Params& p, int sequence)
      : positions(p.positions == nullptr ? nullptr : p.positions + sequence * p.seq_len),
        window(p.prefix == 0 ? static_cast<int>(p.window) : 0),
        seq_len(static_cast<int>(p.seq_len)),
        prefix(static_cast<int>(p.prefix)),
        hiding(static_cast<int>(p.window)) {}

  /// Rows past the sequence count as the last one.
  [[nodiscard]] __device__ int first_key(int row) const {
    row = min(row, seq_len - 1);
    const int of_document = positions == nullptr ? 0 : max(row - positions[row], 0);
    return window == 0 ? of_document : max(of_document, row + 1 - window);
  }

  /// True if the key lies between the prefix, of a document that begins at `first`, and the
  /// query's window.
  [[nodiscard]] __device__ bool hides(int key, int query, int first) const {
    return prefix != 0 && hiding != 0 && key >= first + prefix && key + hiding <= query;
  }

  /// One past the last query that sees `key`, which must be inside the sequence. To be called by
  /// all lanes of a warp together: each tests one of 32 rows that divide the remaining range.
  [[nodiscard]] __device__ int end_of_queries(int key) const {
    int begin = key + 1;  // Row begin - 1 sees it, rows from `end` on do not.
    int end = window == 0 ? seq_len : min(seq_len, key + window);
    if (positions == nullptr) {
      return end;
    }
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    while (begin < end) {
      const int step = (end - begin + kWarpSize - 1) / kWarpSize;
      const int row = begin + lane * step;
      const int seeing = __popc(__ballot_sync(kAllLanes, row < end && first_key(row) <= key));
      end = seeing == 0 ? begin : min(end, begin + seeing * step);
      begin = seeing == 0 ? begin : begin + (seeing - 1) * step + 1;
    }
    return begin;
  }
};

/// Query heads per key and value head. REQUIRES: resolved() params.
template <class Params>
__device__ int heads_of_group(const Params& p) {
  return static_cast<int>(p.heads) / static_cast<int>(p.kv_heads);
}

/// True if queries see fewer than all keys up to their own, or scores are capped, or beside sinks:
/// the kernel for plain attention has no register to spare.
template <class Params>
bool limits_sight(const Params& p) {
  bool sinks = false;
  if constexpr (requires { p.sinks; }) {
    sinks = p.sinks != nullptr;
  }
  return sinks || p.positions != nullptr || p.window != 0 || p.softcap != 0.0F;
}

/// Fills in the params' defaults and drops a window that covers everything. REQUIRES: fp32 with a
/// prefix. (base/check.hpp does not compile here: it reads formats at compile time.)
template <class Params>
Params resolved(const Params& params) {
  Params p = params;
  p.kv_heads = p.kv_heads == 0 ? p.heads : p.kv_heads;
  p.value_dim = p.values();
  p.window = p.window >= p.seq_len ? 0 : p.window;
  p.prefix = p.window == 0 ? 0 : p.prefix;
  if (p.prefix != 0 && p.dtype != DType::f32) {
    throw std::logic_error("attention with a prefix is fp32 on CUDA");
  }
  return p;
}

/// Tile columns that fit any of the call's tensors.
template <class Params>
std::int64_t widest_head(const Params& p) {
  return std::max(p.head_dim, p.values());
}

}  // namespace train::kernels::cuda
