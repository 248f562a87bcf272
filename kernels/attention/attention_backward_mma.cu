#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/attention_mma.cuh"

// The scores are computed twice, once for the gradients of keys and values and once for those of
// queries: seven products where one kernel would do with five, but every gradient is summed by one
// warp in one order, in registers, with neither atomics nor sums in memory.
namespace train::kernels::cuda {
namespace {

/// Own rows are queries. A warp's sums: dq, scores, gradients (32 x 128 and twice 32 x 32 at dim
/// 128: 192 registers of a lane).
template <int dim>
struct QueryShape : MmaShape<dim, 4, 2, 32> {
  static constexpr int blocks_at_once = 2;
};
template <>
struct QueryShape<256> : MmaShape<256, 4, 1, 32> {
  static constexpr int blocks_at_once = 1;
};

/// Own rows are keys: dk and dv, scores, gradients. At dim 128 that leaves a warp 16 keys (twice 64
/// registers, and twice 32), and eight of them a block, since every block reads all queries. At dim
/// 256 a block sums half the columns only, and a second one the others.
template <int dim>
struct KeyShape : MmaShape<dim, 8, 1, 64> {
  static constexpr int columns = dim;
  static constexpr int blocks_at_once = 1;
};
template <>
struct KeyShape<64> : MmaShape<64, 4, 2, 32> {
  static constexpr int columns = 64;
  static constexpr int blocks_at_once = 2;
};
template <>
struct KeyShape<256> : MmaShape<256, 4, 1, 32> {
  static constexpr int columns = 128;
  static constexpr int blocks_at_once = 1;
};

/// Eight bf16 of a row from `column` on; zeros past the head.
struct Chunk {
  float value[chunk_columns];

  __device__ Chunk(const Bf16* row, int column, const MmaHead& at) {
    if (at.aligned && column < at.head_dim) {
      const uint4 bits = *reinterpret_cast<const uint4*>(row + column);
      const std::uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (int i = 0; i < chunk_columns; ++i) {
        value[i] = from_upper_half(static_cast<std::uint16_t>(pairs[i / 2] >> (i % 2 * 16)));
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < chunk_columns; ++i) {
      value[i] = column + i < at.head_dim ? value_of(row[column + i]) : 0.0F;
    }
  }
};

/// delta = sum over the head of dout * out, the softmax gradient's row term; dim / 8 lanes a row.
template <int dim>
__global__ void __launch_bounds__(block_threads)
    attention_delta_mma_kernel(AttentionBackwardParams p, bool aligned) {
  constexpr int lanes = dim / chunk_columns;
  const MmaHead at(p, aligned);
  const int row = static_cast<int>(blockIdx.y) * (block_threads / lanes) +
                  static_cast<int>(threadIdx.x) / lanes;
  const int column = static_cast<int>(threadIdx.x) % lanes * chunk_columns;
  float sum = 0.0F;
  if (row < at.seq_len) {
    const Chunk dout(at.row(static_cast<const Bf16*>(p.dout), p.dout_layout, row), column, at);
    const Chunk out(at.row(static_cast<const Bf16*>(p.out), p.out_layout, row), column, at);
#pragma unroll
    for (int i = 0; i < chunk_columns; ++i) {
      sum = fmaf(dout.value[i], out.value[i], sum);
    }
  }
  sum = warp_sum<lanes>(sum);
  if (column == 0 && row < at.seq_len) {
    p.delta[at.first_row() + row] = sum;
  }
}

/// What a query's row takes from its whole row of scores: lse in powers of two, and delta. A query
/// past the sequence has an infinite lse, so that its probabilities are zeros.
__device__ inline float lse_term(const AttentionBackwardParams& p, const MmaHead& at, int query) {
  return query < at.seq_len ? p.lse[at.first_row() + query] * log2_of_e : INFINITY;
}
__device__ inline float delta_term(const AttentionBackwardParams& p, const MmaHead& at, int query) {
  return query < at.seq_len ? p.delta[at.first_row() + query] : 0.0F;
}

/// scores become probabilities; lse(m, n, i) is the query's, seen(m, n, i) whether it sees the key.
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

/// gradients of the probabilities become those of the scores: probability (gradient - delta).
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

/// dq of one tile of queries: the keys' tiles follow each other, up to its last one.
template <int dim>
__global__ void __launch_bounds__(QueryShape<dim>::threads, QueryShape<dim>::blocks_at_once)
    attention_query_gradient_mma_kernel(AttentionBackwardParams p, bool aligned) {
  using S = QueryShape<dim>;
  constexpr int douts = S::own_bytes;  // Queries, dout, then pairs of keys and values.
  constexpr int keys = 2 * S::own_bytes;
  const MmaHead at(p, aligned);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * S::rows;
  const int own_row = warp_index() * S::warp_rows;
  const int own = first + own_row;
  const int end = min(first + S::rows, at.seq_len);
  const auto load_keys = [&](int first_key, int slot) {
    const int to = keys + slot * 2 * S::other_bytes;
    load_tile<dim, S::others, S::threads>(to, at, p.k, p.k_layout, first_key);
    load_tile<dim, S::others, S::threads>(to + S::other_bytes, at, p.v, p.v_layout, first_key);
    commit_copies();
  };
  load_tile<dim, S::rows, S::threads>(0, at, p.q, p.q_layout, first);
  load_tile<dim, S::rows, S::threads>(douts, at, p.dout, p.dout_layout, first);
  load_keys(0, 0);
  // Rows' terms, which would cost registers: lse, then delta.
  float* lse = dynamic_shared<float>() + S::shared_bytes(2) / static_cast<int>(sizeof(float));
  const float* delta = lse + S::rows;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * S::rows; i += S::threads) {
    lse[i] = i < S::rows ? lse_term(p, at, first + i) : delta_term(p, at, first + i - S::rows);
  }
  Sums<S::blocks, dim> dq;
  clear<S::blocks, dim>(dq);
  const float scale_log2 = p.scale * log2_of_e;
  for (int first_key = 0; first_key < end; first_key += S::others) {
    const int slot = first_key / S::others % 2;
    wait_for_copies<0>();
    __syncthreads();  // This tile is there, and the one before has been used.
    if (first_key + S::others < end) {
      load_keys(first_key + S::others, 1 - slot);
    }
    if (first_key < own + S::warp_rows && own < at.seq_len) {  // A whole warp.
      const Lane lane;
      const int tile = keys + slot * 2 * S::other_bytes;
      Sums<S::blocks, S::others> scores;
      multiply_rows<S>(scores, rows_first<dim>(0, own_row), columns_first<dim>(tile, 0));
      to_probabilities<S>(
          scores, scale_log2, first_key + S::others > own + 1,
          [&](int m, int, int i) { return lse[own_row + m * 16 + i / 2 * 8 + lane.group]; },
          [&](int m, int n, int i) {
            return first_key + n * 8 + lane.pair + i % 2 <= own + m * 16 + i / 2 * 8 + lane.group;
          });
      Sums<S::blocks, S::others> gradients;
      multiply_rows<S>(gradients, rows_first<dim>(douts, own_row),
                       columns_first<dim>(tile + S::other_bytes, 0));
      to_score_gradients<S>(gradients, scores, [&](int m, int, int i) {
        return delta[own_row + m * 16 + i / 2 * 8 + lane.group];
      });
      multiply_scores<S, dim>(dq, gradients, rows_first<dim>(tile, 0));
    }
  }
  scale_sums<S::blocks, dim>(dq, p.scale);
  store_sums<S, dim>(p.dq, p.dq_layout, at, dq, 0, first, 0);
}

/// dk and dv of one tile of keys: the queries' tiles follow each other, from its own to the last.
/// Scores lie transposed, a key's in a row, so that they are left operands where they are summed.
template <int dim>
__global__ void __launch_bounds__(KeyShape<dim>::threads, KeyShape<dim>::blocks_at_once)
    attention_key_gradient_mma_kernel(AttentionBackwardParams p, bool aligned) {
  using S = KeyShape<dim>;
  constexpr int values = S::own_bytes;  // Keys, values, then pairs of queries and dout, then terms.
  constexpr int queries = 2 * S::own_bytes;
  constexpr int columns = S::columns;
  const MmaHead at(p, aligned);
  float* terms = dynamic_shared<float>() + S::shared_bytes(2) / static_cast<int>(sizeof(float));
  const int first = static_cast<int>(blockIdx.y) * S::rows;
  const int own_row = warp_index() * S::warp_rows;
  const int own = first + own_row;
  const int part = static_cast<int>(blockIdx.z) * columns;
  const int me = static_cast<int>(threadIdx.x);
  const auto load_queries = [&](int first_query, int slot) {
    const int to = queries + slot * 2 * S::other_bytes;
    load_tile<dim, S::others, S::threads>(to, at, p.q, p.q_layout, first_query);
    load_tile<dim, S::others, S::threads>(to + S::other_bytes, at, p.dout, p.dout_layout,
                                          first_query);
    commit_copies();
    // This thread's one of the tile's lse and delta.
    const int query = first_query + me % S::others;
    return me < S::others ? lse_term(p, at, query) : delta_term(p, at, query);
  };
  static_assert(2 * S::others <= S::threads);
  load_tile<dim, S::rows, S::threads>(0, at, p.k, p.k_layout, first);
  load_tile<dim, S::rows, S::threads>(values, at, p.v, p.v_layout, first);
  float term = load_queries(first, first / S::others % 2);
  Sums<S::blocks, columns> dk;
  Sums<S::blocks, columns> dv;
  clear<S::blocks, columns>(dk);
  clear<S::blocks, columns>(dv);
  const float scale_log2 = p.scale * log2_of_e;
  for (int first_query = first; first_query < at.seq_len; first_query += S::others) {
    const int slot = first_query / S::others % 2;
    float* lse = terms + slot * 2 * S::others;
    if (me < 2 * S::others) {
      lse[me] = term;
    }
    wait_for_copies<0>();
    __syncthreads();  // This tile is there, and the one before has been used.
    if (first_query + S::others < at.seq_len) {
      term = load_queries(first_query + S::others, 1 - slot);
    }
    if (first_query + S::others > own && own < at.seq_len) {  // A whole warp.
      const Lane lane;
      const int tile = queries + slot * 2 * S::other_bytes;
      const float* delta = lse + S::others;
      Sums<S::blocks, S::others> scores;
      multiply_rows<S>(scores, rows_first<dim>(0, own_row), columns_first<dim>(tile, 0));
      to_probabilities<S>(
          scores, scale_log2, first_query + 1 < own + S::warp_rows,
          [&](int, int n, int i) { return lse[n * 8 + lane.pair + i % 2]; },
          [&](int m, int n, int i) {
            return own + m * 16 + i / 2 * 8 + lane.group <= first_query + n * 8 + lane.pair + i % 2;
          });
      const SharedAddress douts = rows_first<dim>(tile + S::other_bytes, 0);
      multiply_scores<S, columns>(dv, scores, moved<dim>(douts, part / 16, 0));
      Sums<S::blocks, S::others> gradients;
      multiply_rows<S>(gradients, rows_first<dim>(values, own_row),
                       columns_first<dim>(tile + S::other_bytes, 0));
      to_score_gradients<S>(gradients, scores,
                            [&](int, int n, int i) { return delta[n * 8 + lane.pair + i % 2]; });
      multiply_scores<S, columns>(dk, gradients,
                                  moved<dim>(rows_first<dim>(tile, 0), part / 16, 0));
    }
  }
  scale_sums<S::blocks, columns>(dk, p.scale);
  store_sums<S, columns>(p.dk, p.dk_layout, at, dk, 0, first, part);
  store_sums<S, columns>(p.dv, p.dv_layout, at, dv, values, first, part);
}

bool all_aligned(const AttentionBackwardParams& p) {
  return p.head_dim % chunk_columns == 0 && chunks_aligned(p.q, p.q_layout) &&
         chunks_aligned(p.k, p.k_layout) && chunks_aligned(p.v, p.v_layout) &&
         chunks_aligned(p.out, p.out_layout) && chunks_aligned(p.dout, p.dout_layout) &&
         chunks_aligned(p.dq, p.dq_layout) && chunks_aligned(p.dk, p.dk_layout) &&
         chunks_aligned(p.dv, p.dv_layout);
}

}  // namespace

/// Three passes, each of which overwrites what it computes: no sums across blocks.
void attention_backward_mma(CudaStream& stream, const AttentionBackwardParams& p) {
  const bool aligned = all_aligned(p);
  const std::int64_t heads = p.sequences * p.heads;
  for_head_columns(p.head_dim, [&]<int dim>() {
    constexpr int rows = block_threads / (dim / chunk_columns);
    launch(stream, attention_delta_mma_kernel<dim>,
           {.blocks = dim3(static_cast<unsigned>(heads),
                           static_cast<unsigned>(divide_up(p.seq_len, rows)))},
           p, aligned);
    using Q = QueryShape<dim>;
    constexpr int row_term_bytes = 2 * Q::rows * static_cast<int>(sizeof(float));
    const Grid queries = mma_grid<Q>(heads, p.seq_len, 2, row_term_bytes, 1);
    allow_shared_bytes(attention_query_gradient_mma_kernel<dim>, queries.shared_bytes);
    launch(stream, attention_query_gradient_mma_kernel<dim>, queries, p, aligned);
    using S = KeyShape<dim>;
    constexpr int term_bytes = 4 * S::others * static_cast<int>(sizeof(float));
    const Grid keys = mma_grid<S>(heads, p.seq_len, 2, term_bytes, dim / S::columns);
    allow_shared_bytes(attention_key_gradient_mma_kernel<dim>, keys.shared_bytes);
    launch(stream, attention_key_gradient_mma_kernel<dim>, keys, p, aligned);
  });
}

}  // namespace train::kernels::cuda
