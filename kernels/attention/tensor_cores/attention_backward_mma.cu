#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/tensor_cores/attention_gradients.cuh"
#include "kernels/attention/tensor_cores/attention_mma.cuh"

// Scores are computed twice, for the gradients of keys and values and for those of queries. That is
// seven products where one kernel would need five, but every gradient is summed by one warp in one
// order, in registers, without atomics or sums in memory.
namespace train::kernels::cuda {
namespace {

/// Own rows are queries. Sums of a warp: dq, scores, gradients (32 x 128 and twice 32 x 32 at dim
/// 128: 192 registers of a lane).
template <int dim>
struct QueryShape : MmaShape<dim, 4, 2, 32> {
  static constexpr int blocks_at_once = 2;
};
template <>
struct QueryShape<256> : MmaShape<256, 4, 1, 32> {
  static constexpr int blocks_at_once = 1;
};

/// Own rows are keys. Sums: dk and dv, scores, gradients. At dim 128 this limits a warp to 16 keys
/// (twice 64 registers, and twice 32); a block has eight warps, since every block reads all
/// queries. At dim 256 a block sums only half the columns, and a second block the rest.
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
  float value[kChunkColumns];

  __device__ Chunk(const Bf16* row, int column, const MmaHead& at) {
    if (at.aligned && column < at.columns) {
      const uint4 bits = *reinterpret_cast<const uint4*>(row + column);
      const std::uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (int i = 0; i < kChunkColumns; ++i) {
        value[i] = from_upper_half(static_cast<std::uint16_t>(pairs[i / 2] >> (i % 2 * 16)));
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kChunkColumns; ++i) {
      value[i] = column + i < at.columns ? value_of(row[column + i]) : 0.0F;
    }
  }
};

/// delta = sum over the head of dout * out, the softmax gradient's row term; dim / 8 lanes per row.
template <int dim>
__global__ void __launch_bounds__(kBlockThreads)
    attention_delta_mma_kernel(AttentionBackwardParams p, bool aligned) {
  constexpr int lanes = dim / kChunkColumns;
  const MmaHead query(p, p.heads, aligned);
  const MmaHead at = query.of(query.head, p.value_dim);
  const int row = static_cast<int>(blockIdx.y) * (kBlockThreads / lanes) +
                  static_cast<int>(threadIdx.x) / lanes;
  const int column = static_cast<int>(threadIdx.x) % lanes * kChunkColumns;
  float sum = 0.0F;
  if (row < at.seq_len) {
    const Chunk dout(at.row(static_cast<const Bf16*>(p.dout), p.dout_layout, row), column, at);
    const Chunk out(at.row(static_cast<const Bf16*>(p.out), p.out_layout, row), column, at);
#pragma unroll
    for (int i = 0; i < kChunkColumns; ++i) {
      sum = fmaf(dout.value[i], out.value[i], sum);
    }
  }
  sum = warp_sum<lanes>(sum);
  if (column == 0 && row < at.seq_len) {
    p.delta[at.first_row(p.heads) + row] = sum;
  }
}

/// Computes a tile's probabilities from scores left right^T; see to_probabilities().
template <class Shape, bool limited, class Lse, class Seen>
__device__ void compute_probabilities(Sums<Shape::blocks, Shape::others>& scores,
                                      const AttentionBackwardParams& p, SharedAddress left,
                                      SharedAddress right, bool masked, const Lse& lse,
                                      const Seen& seen) {
  multiply_rows<Shape>(scores, left, right);
  to_tile_probabilities<Shape, limited>(scores, p, masked, lse, seen);
}

/// Computes a tile's score gradients from the probability gradients left right^T.
template <class Shape, bool limited, class Lse, class Delta>
__device__ void compute_gradients(Sums<Shape::blocks, Shape::others>& gradients,
                                  const Sums<Shape::blocks, Shape::others>& probabilities,
                                  const AttentionBackwardParams& p, SharedAddress left,
                                  SharedAddress right, const Lse& lse, const Delta& delta) {
  multiply_rows<Shape>(gradients, left, right);
  to_tile_gradients<Shape, limited>(gradients, probabilities, p, lse, delta);
}

/// Computes dq of one tile of queries, over all tiles of keys that any of them sees.
template <int dim, bool limited>
__global__ void __launch_bounds__(QueryShape<dim>::threads, QueryShape<dim>::blocks_at_once)
    attention_query_gradient_mma_kernel(AttentionBackwardParams p, bool aligned) {
  using S = QueryShape<dim>;
  constexpr int douts = S::own_bytes;  // Layout: queries, dout, then pairs of keys and values.
  constexpr int keys = 2 * S::own_bytes;
  const MmaHead at(p, p.heads, aligned);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * S::rows;
  const int own_row = warp_index() * S::warp_rows;
  const int own = first + own_row;
  const int end = min(first + S::rows, at.seq_len);
  int begin = 0;
  load_tile<dim, S::rows, S::threads>(0, at, p.q, p.q_layout, first);
  load_tile<dim, S::rows, S::threads>(douts, at.of(at.head, p.value_dim), p.dout, p.dout_layout,
                                      first);
  // Per-row terms, kept out of registers: lse, then delta, then the first visible key.
  float* lse = dynamic_shared<float>() + S::shared_bytes(2) / static_cast<int>(sizeof(float));
  const float* delta = lse + S::rows;
  int* first_keys = reinterpret_cast<int*>(lse + 2 * S::rows);
  if constexpr (limited) {
    begin = find_first_keys<S>(first_keys, Sight(p, at.sequence), first);
  }
  const auto pair = [&](int first_key) {
    return keys + first_key / S::others % 2 * 2 * S::other_bytes;
  };
  load_keys<S>(pair(begin), at, p, begin);
  for (int i = static_cast<int>(threadIdx.x); i < 2 * S::rows; i += S::threads) {
    lse[i] = i < S::rows ? lse_term(p, at, first + i) : delta_term(p, at, first + i - S::rows);
  }
  Sums<S::blocks, dim> dq;
  clear<S::blocks, dim>(dq);
  for (int first_key = begin; first_key < end; first_key += S::others) {
    wait_for_copies<0>();
    __syncthreads();  // This tile has arrived, and the previous one is no longer in use.
    if (first_key + S::others < end) {
      load_keys<S>(pair(first_key + S::others), at, p, first_key + S::others);
    }
    if (first_key >= own + S::warp_rows || own >= at.seq_len) {  // The whole warp skips.
      continue;
    }
    bool masked = first_key + S::others > own + 1;
    if constexpr (limited) {
      if (first_key + S::others <= first_keys[own_row]) {
        continue;
      }
      masked = masked || first_key < first_keys[own_row + S::warp_rows - 1];
    }
    const Lane lane;
    const auto row_of = [&](int m, int i) { return own_row + m * 16 + i / 2 * 8 + lane.group; };
    const auto lse_of = [&](int m, int, int i) { return lse[row_of(m, i)]; };
    const int tile = pair(first_key);
    Sums<S::blocks, S::others> scores;
    compute_probabilities<S, limited>(
        scores, p, rows_first<dim>(0, own_row), columns_first<dim>(tile, 0), masked, lse_of,
        [&](int m, int n, int i) {
          const int key = first_key + n * 8 + lane.pair + i % 2;
          return key <= first + row_of(m, i) && (!limited || key >= first_keys[row_of(m, i)]);
        });
    Sums<S::blocks, S::others> gradients;
    compute_gradients<S, limited>(gradients, scores, p, rows_first<dim>(douts, own_row),
                                  columns_first<dim>(tile + S::other_bytes, 0), lse_of,
                                  [&](int m, int, int i) { return delta[row_of(m, i)]; });
    multiply_scores<S, dim>(dq, gradients, rows_first<dim>(tile, 0));
  }
  scale_sums<S::blocks, dim>(dq, p.scale);
  store_sums<S, dim>(p.dq, p.dq_layout, at, dq, 0, first, 0);
}

/// Adds the contributions of a tile of queries, from `first_query` on, to dk and dv of a warp's
/// keys (own_row of the block's). `tile`: its place, with dout behind it; lse, delta and first keys
/// lie at `lse`.
template <class S, bool limited>
__device__ void add_queries(Sums<S::blocks, S::columns>& dk, Sums<S::blocks, S::columns>& dv,
                            const AttentionBackwardParams& p, int tile, const float* lse,
                            int first_query, int own_row) {
  constexpr int dim = S::dim;
  const int own = static_cast<int>(blockIdx.y) * S::rows + own_row;
  const int part = static_cast<int>(blockIdx.z) * S::columns;
  const float* delta = lse + S::others;
  const int* first_keys = reinterpret_cast<const int*>(lse + 2 * S::others);
  bool masked = first_query + 1 < own + S::warp_rows;
  if constexpr (limited) {
    if (first_keys[0] >= own + S::warp_rows) {  // No query sees these keys.
      return;
    }
    masked = masked || first_keys[S::others - 1] > own;
  }
  const Lane lane;
  const auto row_of = [&](int n, int i) { return n * 8 + lane.pair + i % 2; };
  const auto lse_of = [&](int, int n, int i) { return lse[row_of(n, i)]; };
  Sums<S::blocks, S::others> scores;
  compute_probabilities<S, limited>(
      scores, p, rows_first<dim>(0, own_row), columns_first<dim>(tile, 0), masked, lse_of,
      [&](int m, int n, int i) {
        const int key = own + m * 16 + i / 2 * 8 + lane.group;
        return key <= first_query + row_of(n, i) && (!limited || key >= first_keys[row_of(n, i)]);
      });
  const SharedAddress douts = rows_first<dim>(tile + S::other_bytes, 0);
  multiply_scores<S, S::columns>(dv, scores, moved<dim>(douts, part / 16, 0));
  Sums<S::blocks, S::others> gradients;
  compute_gradients<S, limited>(gradients, scores, p, rows_first<dim>(S::own_bytes, own_row),
                                columns_first<dim>(tile + S::other_bytes, 0), lse_of,
                                [&](int, int n, int i) { return delta[row_of(n, i)]; });
  multiply_scores<S, S::columns>(dk, gradients, moved<dim>(rows_first<dim>(tile, 0), part / 16, 0));
}

/// Computes dk and dv of one tile of keys: for each query head of the group in order, over the
/// tiles of queries that see any of the keys. Scores are transposed, one key per row, so that they
/// can be the left operands of the sums.
template <int dim, bool limited>
__global__ void __launch_bounds__(KeyShape<dim>::threads, KeyShape<dim>::blocks_at_once)
    attention_key_gradient_mma_kernel(AttentionBackwardParams p, bool aligned) {
  using S = KeyShape<dim>;
  constexpr int values = S::own_bytes;  // Layout: keys, values, pairs of queries and dout, then
                                        // terms.
  constexpr int queries = 2 * S::own_bytes;
  constexpr int columns = S::columns;
  constexpr int terms_of_row = limited ? 3 : 2;
  const MmaHead at(p, p.kv_heads, aligned);
  float* terms = dynamic_shared<float>() + S::shared_bytes(2) / static_cast<int>(sizeof(float));
  const int first = static_cast<int>(blockIdx.y) * S::rows;
  const int own_row = warp_index() * S::warp_rows;
  const int own = first + own_row;
  const int part = static_cast<int>(blockIdx.z) * columns;
  const int me = static_cast<int>(threadIdx.x);
  static_assert(terms_of_row * S::others <= S::threads);
  const int group = heads_of_group(p);
  int head = at.head * group;
  const int heads_end = head + group;
  load_tile<dim, S::rows, S::threads>(0, at, p.k, p.k_layout, first);
  load_tile<dim, S::rows, S::threads>(values, at.of(at.head, p.value_dim), p.v, p.v_layout, first);
  const auto pair = [&](int slot) { return queries + slot * 2 * S::other_bytes; };
  float term = load_queries<S, limited>(pair(0), at.of(head, p.head_dim), p, first);
  int end = at.seq_len;
  if constexpr (limited) {
    end = Sight(p, at.sequence).end_of_queries(min(first + S::rows, at.seq_len) - 1);
  }
  Sums<S::blocks, columns> dk;
  Sums<S::blocks, columns> dv;
  clear<S::blocks, columns>(dk);
  clear<S::blocks, columns>(dv);
  int slot = 0;
  for (int first_query = first; head < heads_end; slot = 1 - slot) {
    float* lse = terms + slot * terms_of_row * S::others;
    if (me < terms_of_row * S::others) {
      lse[me] = term;
    }
    wait_for_copies<0>();
    __syncthreads();  // This tile has arrived, and the previous one is no longer in use.
    const int tile_query = first_query;
    first_query += S::others;
    if (first_query >= end) {
      first_query = first;
      ++head;
    }
    if (head < heads_end) {
      term = load_queries<S, limited>(pair(1 - slot), at.of(head, p.head_dim), p, first_query);
    }
    if (tile_query + S::others <= own || own >= at.seq_len) {  // The whole warp skips.
      continue;
    }
    add_queries<S, limited>(dk, dv, p, pair(slot), lse, tile_query, own_row);
  }
  scale_sums<S::blocks, columns>(dk, p.scale);
  store_sums<S, columns>(p.dk, p.dk_layout, at, dk, 0, first, part);
  store_sums<S, columns>(p.dv, p.dv_layout, at.of(at.head, p.value_dim), dv, values, first, part);
}

bool all_aligned(const AttentionBackwardParams& p) {
  return p.head_dim % kChunkColumns == 0 && p.value_dim % kChunkColumns == 0 &&
         chunks_aligned(p.q, p.q_layout) && chunks_aligned(p.k, p.k_layout) &&
         chunks_aligned(p.v, p.v_layout) && chunks_aligned(p.out, p.out_layout) &&
         chunks_aligned(p.dout, p.dout_layout) && chunks_aligned(p.dq, p.dq_layout) &&
         chunks_aligned(p.dk, p.dk_layout) && chunks_aligned(p.dv, p.dv_layout);
}

/// Three passes, each of which overwrites its results: no sums across blocks.
template <int dim, bool limited>
void launch_backward(CudaStream& stream, const AttentionBackwardParams& p) {
  const bool aligned = all_aligned(p);
  const std::int64_t heads = p.sequences * p.heads;
  constexpr int terms_of_row = limited ? 3 : 2;
  constexpr int term_bytes = terms_of_row * static_cast<int>(sizeof(float));
  constexpr int rows = kBlockThreads / (dim / kChunkColumns);
  launch(stream, attention_delta_mma_kernel<dim>,
         {.blocks = dim3(static_cast<unsigned>(heads),
                         static_cast<unsigned>(divide_up(p.seq_len, rows)))},
         p, aligned);
  if (dim <= kMostWgmmaColumns && aligned && has_warpgroups()) {
    attention_gradients_wgmma(stream, p);
    return;
  }
  using Q = QueryShape<dim>;
  const Grid queries = mma_grid<Q>(heads, p.seq_len, 2, Q::rows * term_bytes, 1);
  allow_shared_bytes(attention_query_gradient_mma_kernel<dim, limited>, queries.shared_bytes);
  launch(stream, attention_query_gradient_mma_kernel<dim, limited>, queries, p, aligned);
  using S = KeyShape<dim>;
  const Grid keys = mma_grid<S>(p.sequences * p.kv_heads, p.seq_len, 2, 2 * S::others * term_bytes,
                                dim / S::columns);
  allow_shared_bytes(attention_key_gradient_mma_kernel<dim, limited>, keys.shared_bytes);
  launch(stream, attention_key_gradient_mma_kernel<dim, limited>, keys, p, aligned);
}

}  // namespace

void attention_backward_mma(CudaStream& stream, const AttentionBackwardParams& p) {
  for_head_columns(widest_head(p), [&]<int dim>() {
    if (limits_sight(p)) {
      launch_backward<dim, true>(stream, p);
    } else {
      launch_backward<dim, false>(stream, p);
    }
  });
}

}  // namespace train::kernels::cuda
