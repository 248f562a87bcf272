#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_sight.cuh"
#include "kernels/attention/tensor_cores/attention_mma.cuh"

// Backward pass of attention on tensor cores: from scores to their gradients, in registers.
namespace train::kernels::cuda {

/// Per-query terms of the softmax over its whole score row: lse in powers of two, and delta. A
/// query past the sequence has infinite lse, so its probabilities are zero. `at`: a query head.
__device__ inline float lse_term(const AttentionBackwardParams& p, const MmaHead& at, int query) {
  return query < at.seq_len ? p.lse[at.first_row(p.heads) + query] * kLog2OfE : INFINITY;
}
__device__ inline float delta_term(const AttentionBackwardParams& p, const MmaHead& at, int query) {
  return query < at.seq_len ? p.delta[at.first_row(p.heads) + query] : 0.0F;
}

/// Turns scores into probabilities; lse(m, n, i) is the query's, seen(m, n, i) is true if it sees
/// the key.
template <class Shape, class Lse, class Seen>
__device__ void to_probabilities(Sums<Shape::blocks, Shape::others>& scores, float scale_log2,
                                 bool masked, const Lse& lse, const Seen& seen) {
#pragma unroll
  for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::others / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& score = scores[m][n][i];
        score = power_of_two(fmaf(score, scale_log2, -lse(m, n, i)));
        if (masked && !seen(m, n, i)) {
          score = 0.0F;
        }
      }
    }
  }
}

/// Turns probability gradients into score gradients: probability (gradient - delta).
template <class Shape, class Delta>
__device__ void to_score_gradients(Sums<Shape::blocks, Shape::others>& gradients,
                                   const Sums<Shape::blocks, Shape::others>& probabilities,
                                   const Delta& delta) {
#pragma unroll
  for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::others / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        gradients[m][n][i] = probabilities[m][n][i] * (gradients[m][n][i] - delta(m, n, i));
      }
    }
  }
}

/// Turns gradients of capped scores into score gradients: times 1 - (capped score / cap)^2. The
/// capped score is the log of its probability plus lse(m, n, i).
template <class Shape, class Lse>
__device__ void to_uncapped_gradients(Sums<Shape::blocks, Shape::others>& gradients,
                                      const Sums<Shape::blocks, Shape::others>& probabilities,
                                      float cap, const Lse& lse) {
  const float inverse = 1.0F / (cap * kLog2OfE);
#pragma unroll
  for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::others / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float probability = probabilities[m][n][i];
        const float tanh = (log_to_two(probability) + lse(m, n, i)) * inverse;
        if (probability > 0.0F) {  // For 0 both are infinite, and the gradient is already 0.
          gradients[m][n][i] *= fmaf(-tanh, tanh, 1.0F);
        }
      }
    }
  }
}

/// Replaces a tile's scores by its probabilities.
template <class Shape, bool limited, class Lse, class Seen>
__device__ void to_tile_probabilities(Sums<Shape::blocks, Shape::others>& scores,
                                      const AttentionBackwardParams& p, bool masked, const Lse& lse,
                                      const Seen& seen) {
  if constexpr (limited) {
    if (p.softcap != 0.0F) {
      cap_scores<Shape>(scores, p.scale, p.softcap);
    }
  }
  const float scale_log2 = limited ? scale_of_scores(p) : p.scale * kLog2OfE;
  to_probabilities<Shape>(scores, scale_log2, masked, lse, seen);
}

/// Replaces a tile's probability gradients by its score gradients.
template <class Shape, bool limited, class Lse, class Delta>
__device__ void to_tile_gradients(Sums<Shape::blocks, Shape::others>& gradients,
                                  const Sums<Shape::blocks, Shape::others>& probabilities,
                                  const AttentionBackwardParams& p, const Lse& lse,
                                  const Delta& delta) {
  to_score_gradients<Shape>(gradients, probabilities, delta);
  if constexpr (limited) {
    if (p.softcap != 0.0F) {
      to_uncapped_gradients<Shape>(gradients, probabilities, p.softcap, lse);
    }
  }
}

template <int blocks, int columns>
__device__ void scale_sums(Sums<blocks, columns>& sums, float factor) {
#pragma unroll
  for (int m = 0; m < blocks; ++m) {
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[m][n][i] *= factor;
      }
    }
  }
}

/// Starts copying a tile of queries, with the tile of their dout behind it, to shared memory at
/// `to`. Returns this thread's share of the tile's lse, delta and first keys: one value per row, in
/// this order.
template <class Shape, bool limited>
__device__ float load_queries(int to, const MmaHead& query, const AttentionBackwardParams& p,
                              int first_query) {
  load_tile<Shape::dim, Shape::others, Shape::threads>(to, query, p.q, p.q_layout, first_query);
  load_tile<Shape::dim, Shape::others, Shape::threads>(to + Shape::other_bytes,
                                                       query.of(query.head, p.value_dim), p.dout,
                                                       p.dout_layout, first_query);
  commit_copies();
  const int me = static_cast<int>(threadIdx.x);
  const int row = first_query + me % Shape::others;
  if constexpr (limited) {
    if (me >= 2 * Shape::others) {
      return __int_as_float(Sight(p, query.sequence).first_key(row));
    }
  }
  return me < Shape::others ? lse_term(p, query, row) : delta_term(p, query, row);
}

}  // namespace train::kernels::cuda
