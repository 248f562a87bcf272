#include "kernels/attention/attention_gradients.cuh"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/attention_mma.cuh"
#include "kernels/attention/attention_panels.cuh"

// As attention_backward_mma.cu, where each gradient is summed by one warpgroup in one order. Own
// rows are 64 of each of two warpgroups: their left operands are read from shared memory once for
// four warps, and so are the others. While one of a tile's two products of scores runs, threads
// work on the other.
namespace train::kernels::cuda {
namespace {

/// Own rows: queries of the first kernel, keys of the second one. Sums of a thread at 128 columns:
/// dq 64, or dk and dv 128, and twice 32 of a tile.
template <int dim>
using GradientShape = MmaShape<dim, 8, 1, 64>;

template <int dim>
using OwnPlaces = PanelPlaces<GradientShape<dim>::rows>;
template <int dim>
using OtherPlaces = PanelPlaces<GradientShape<dim>::others>;

/// What a tile of keys, its values behind it at `tile`, adds to dq of a warpgroup's queries. lse,
/// delta and first keys of the block's queries lie at `lse`.
template <class S, bool limited>
__device__ void add_keys(Sums<1, S::dim>& dq, const AttentionBackwardParams& p, int tile,
                         const float* lse, int first, int first_key) {
  const int own_row = warp_index() * S::warp_rows;
  const float* delta = lse + S::rows;
  const int* first_keys = reinterpret_cast<const int*>(lse + 2 * S::rows);
  bool masked = first_key + S::others > first + own_row + 1;
  if constexpr (limited) {
    if (first_key + S::others <= first_keys[group_row()]) {  // A whole warpgroup.
      return;
    }
    masked = masked || first_key < first_keys[own_row + S::warp_rows - 1];
  }
  const Lane lane;
  const auto row_of = [&](int i) { return own_row + i / 2 * 8 + lane.group; };
  const auto lse_of = [&](int, int, int i) { return lse[row_of(i)]; };
  Sums<1, S::others> scores;
  Sums<1, S::others> gradients;
  begin_products();
  begin_scores<S>(scores, 0, tile);
  begin_scores<S>(gradients, S::own_bytes, tile + S::other_bytes);
  wait_for_products<1>();
  hold_sums(scores[0]);
  to_tile_probabilities<S, limited>(scores, p, masked, lse_of, [&](int, int n, int i) {
    const int key = first_key + n * 8 + lane.pair + i % 2;
    return key <= first + row_of(i) && (!limited || key >= first_keys[row_of(i)]);
  });
  wait_for_products<0>();
  hold_sums(gradients[0]);
  to_tile_gradients<S, limited>(gradients, scores, p, lse_of,
                                [&](int, int, int i) { return delta[row_of(i)]; });
  Rounded<S> rounded;
  round_scores<S>(rounded, gradients);
  hold_sums(dq[0]);
  begin_products();
  begin_sums<S>(dq, rounded, tile);
  wait_for_products<0>();
  hold_sums(dq[0]);
}

/// dq of one tile of queries: the tiles of keys that one of them sees follow each other.
template <int dim, bool limited>
__device__ void sum_query_gradients(const AttentionBackwardParams& p, bool aligned) {
  using S = GradientShape<dim>;
  constexpr int keys = 2 * S::own_bytes;  // Behind queries and dout: pairs of keys and values.
  const MmaHead at(p, p.heads, aligned);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * S::rows;
  const int of_group = first + group_row();
  const int end = min(first + S::rows, at.seq_len);
  int begin = 0;
  load_tile<dim, S::rows, S::threads, OwnPlaces<dim>>(0, at, p.q, p.q_layout, first);
  load_tile<dim, S::rows, S::threads, OwnPlaces<dim>>(S::own_bytes, at.of(at.head, p.value_dim),
                                                      p.dout, p.dout_layout, first);
  float* lse = dynamic_shared<float>() + S::shared_bytes(2) / static_cast<int>(sizeof(float));
  if constexpr (limited) {
    begin =
        find_first_keys<S>(reinterpret_cast<int*>(lse + 2 * S::rows), Sight(p, at.sequence), first);
  }
  const auto pair = [&](int first_key) {
    return keys + first_key / S::others % 2 * 2 * S::other_bytes;
  };
  load_keys<S, OtherPlaces<dim>>(pair(begin), at, p, begin);
  for (int i = static_cast<int>(threadIdx.x); i < 2 * S::rows; i += S::threads) {
    lse[i] = i < S::rows ? lse_term(p, at, first + i) : delta_term(p, at, first + i - S::rows);
  }
  Sums<1, dim> dq;
  clear<1, dim>(dq);
  for (int first_key = begin; first_key < end; first_key += S::others) {
    await_tile();
    if (first_key + S::others < end) {
      load_keys<S, OtherPlaces<dim>>(pair(first_key + S::others), at, p, first_key + S::others);
    }
    if (first_key < of_group + group_rows && of_group < at.seq_len) {
      add_keys<S, limited>(dq, p, pair(first_key), lse, first, first_key);
    }
  }
  scale_sums<1, dim>(dq, p.scale);
  __syncthreads();  // No warpgroup reads the queries any more.
  store_sums<S, dim>(p.dq, p.dq_layout, at, dq, 0, first, 0);
}

/// What a tile of queries, its dout behind it at `tile`, adds to dk and dv of a warpgroup's keys.
/// The tile's lse, delta and first keys lie at `lse`.
template <class S, bool limited>
__device__ void add_queries(Sums<1, S::dim>& dk, Sums<1, S::dim>& dv,
                            const AttentionBackwardParams& p, int tile, const float* lse,
                            int first_query) {
  const int first = static_cast<int>(blockIdx.y) * S::rows;
  const int own = first + warp_index() * S::warp_rows;
  const float* delta = lse + S::others;
  const int* first_keys = reinterpret_cast<const int*>(lse + 2 * S::others);
  bool masked = first_query + 1 < own + S::warp_rows;
  if constexpr (limited) {
    if (first_keys[0] >= first + group_row() + group_rows) {  // Nobody sees one.
      return;
    }
    masked = masked || first_keys[S::others - 1] > own;
  }
  const Lane lane;
  const auto row_of = [&](int n, int i) { return n * 8 + lane.pair + i % 2; };
  const auto lse_of = [&](int, int n, int i) { return lse[row_of(n, i)]; };
  Sums<1, S::others> scores;
  Sums<1, S::others> gradients;
  hold_sums(dv[0]);
  hold_sums(dk[0]);
  begin_products();
  begin_scores<S>(scores, 0, tile);
  begin_scores<S>(gradients, S::own_bytes, tile + S::other_bytes);
  wait_for_products<1>();
  hold_sums(scores[0]);
  to_tile_probabilities<S, limited>(scores, p, masked, lse_of, [&](int, int n, int i) {
    const int key = own + i / 2 * 8 + lane.group;
    return key <= first_query + row_of(n, i) && (!limited || key >= first_keys[row_of(n, i)]);
  });
  Rounded<S> probabilities;
  round_scores<S>(probabilities, scores);
  begin_products();
  begin_sums<S>(dv, probabilities, tile + S::other_bytes);
  wait_for_products<1>();
  hold_sums(gradients[0]);
  to_tile_gradients<S, limited>(gradients, scores, p, lse_of,
                                [&](int, int n, int i) { return delta[row_of(n, i)]; });
  Rounded<S> rounded;
  round_scores<S>(rounded, gradients);
  begin_products();
  begin_sums<S>(dk, rounded, tile);
  wait_for_products<0>();
  hold_sums(dv[0]);
  hold_sums(dk[0]);
}

/// dk and dv of one tile of keys: for one query head of the group after the other, the tiles of
/// queries that see one of the keys follow each other.
template <int dim, bool limited>
__device__ void sum_key_gradients(const AttentionBackwardParams& p, bool aligned) {
  using S = GradientShape<dim>;
  constexpr int queries = 2 * S::own_bytes;  // Behind keys and values: pairs of queries and dout.
  constexpr int tile_terms = (limited ? 3 : 2) * S::others;
  static_assert(tile_terms <= S::threads);
  const MmaHead at(p, p.kv_heads, aligned);
  float* terms = dynamic_shared<float>() + S::shared_bytes(2) / static_cast<int>(sizeof(float));
  const int first = static_cast<int>(blockIdx.y) * S::rows;
  const int of_group = first + group_row();
  const int me = static_cast<int>(threadIdx.x);
  int head = at.head * heads_of_group(p);
  const int heads_end = head + heads_of_group(p);
  const MmaHead of_values = at.of(at.head, p.value_dim);
  load_tile<dim, S::rows, S::threads, OwnPlaces<dim>>(0, at, p.k, p.k_layout, first);
  load_tile<dim, S::rows, S::threads, OwnPlaces<dim>>(S::own_bytes, of_values, p.v, p.v_layout,
                                                      first);
  const auto load = [&](int slot, int first_query) {
    return load_queries<S, limited, OtherPlaces<dim>>(queries + slot * 2 * S::other_bytes,
                                                      at.of(head, p.head_dim), p, first_query);
  };
  float term = load(0, first);
  int end = at.seq_len;
  if constexpr (limited) {
    end = Sight(p, at.sequence).end_of_queries(min(first + S::rows, at.seq_len) - 1);
  }
  Sums<1, dim> dk;
  Sums<1, dim> dv;
  clear<1, dim>(dk);
  clear<1, dim>(dv);
  int slot = 0;
  for (int first_query = first; head < heads_end; slot = 1 - slot) {
    float* lse = terms + slot * tile_terms;
    if (me < tile_terms) {
      lse[me] = term;
    }
    await_tile();
    const int tile_query = first_query;
    first_query += S::others;
    if (first_query >= end) {
      first_query = first;
      ++head;
    }
    if (head < heads_end) {
      term = load(1 - slot, first_query);
    }
    if (tile_query + S::others > of_group && of_group < at.seq_len) {
      add_queries<S, limited>(dk, dv, p, queries + slot * 2 * S::other_bytes, lse, tile_query);
    }
  }
  scale_sums<1, dim>(dk, p.scale);
  __syncthreads();  // No warpgroup reads the keys and values any more.
  store_sums<S, dim>(p.dk, p.dk_layout, at, dk, 0, first, 0);
  store_sums<S, dim>(p.dv, p.dv_layout, of_values, dv, S::own_bytes, first, 0);
}

template <int dim, bool limited>
__global__ void __launch_bounds__(GradientShape<dim>::threads, 1)
    attention_query_gradient_wgmma_kernel(AttentionBackwardParams p, bool aligned) {
  if constexpr (compiled_for_warpgroups) {
    sum_query_gradients<dim, limited>(p, aligned);
  }
}

template <int dim, bool limited>
__global__ void __launch_bounds__(GradientShape<dim>::threads, 1)
    attention_key_gradient_wgmma_kernel(AttentionBackwardParams p, bool aligned) {
  if constexpr (compiled_for_warpgroups) {
    sum_key_gradients<dim, limited>(p, aligned);
  }
}

template <int dim, bool limited>
void launch_gradients(CudaStream& stream, const AttentionBackwardParams& p, bool aligned) {
  using S = GradientShape<dim>;
  constexpr int term_bytes = (limited ? 3 : 2) * static_cast<int>(sizeof(float));
  const Grid queries = mma_grid<S>(p.sequences * p.heads, p.seq_len, 2, S::rows * term_bytes, 1);
  allow_shared_bytes(attention_query_gradient_wgmma_kernel<dim, limited>, queries.shared_bytes);
  launch(stream, attention_query_gradient_wgmma_kernel<dim, limited>, queries, p, aligned);
  const Grid keys =
      mma_grid<S>(p.sequences * p.kv_heads, p.seq_len, 2, 2 * S::others * term_bytes, 1);
  allow_shared_bytes(attention_key_gradient_wgmma_kernel<dim, limited>, keys.shared_bytes);
  launch(stream, attention_key_gradient_wgmma_kernel<dim, limited>, keys, p, aligned);
}

}  // namespace

void attention_gradients_wgmma(CudaStream& stream, const AttentionBackwardParams& p, bool aligned) {
  const auto launch_for = [&]<int dim>() {
    if (limits_sight(p)) {
      launch_gradients<dim, true>(stream, p, aligned);
    } else {
      launch_gradients<dim, false>(stream, p, aligned);
    }
  };
  widest_head(p) <= 64 ? launch_for.template operator()<64>()
                       : launch_for.template operator()<128>();
}

}  // namespace train::kernels::cuda
