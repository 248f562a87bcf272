#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/tensor_cores/attention_flow.cuh"
#include "kernels/attention/tensor_cores/attention_gradients.cuh"
#include "kernels/attention/tensor_cores/attention_mma.cuh"
#include "kernels/attention/tensor_cores/attention_panels.cuh"

// Variant of attention_backward_mma.cu in which one warpgroup sums each gradient in one order:
// seven products, two of them computed twice, as no sum spans blocks. While one of a tile's two
// score products runs, threads process the other.
namespace train::kernels::cuda {

/// Own rows: queries of the first kernel, keys of the second; 64 for each of two warpgroups.
template <int dim_, bool limited_, int others_, bool many_sums>
struct GradientFlowShape {
  static constexpr int dim = dim_;
  static constexpr bool limited = limited_;
  static constexpr int others = others_;
  static constexpr int blocks = 1;  ///< 16-row blocks of a warp.
  static constexpr int warp_rows = 16;
  static constexpr int groups = 2;
  static constexpr int rows = groups * kGroupRows;
  static constexpr int threads = (groups + 1) * kGroupThreads;
  static constexpr int registers = many_sums ? 240 : 232;
  static constexpr int copier_registers = many_sums ? 24 : 40;
  static constexpr int stages = 2;
  static constexpr int own_bytes = rows * dim * 2;
  static constexpr int other_bytes = others * dim * 2;
  static constexpr int terms = (limited ? 3 : 2) * others;  ///< Terms of a tile of queries.
  static constexpr int terms_at = 2 * stages * (own_bytes + other_bytes);
  static constexpr int barriers_at = terms_at + stages * terms * static_cast<int>(sizeof(float));
  static constexpr int tiles_at = barriers_at + 5 * stages * kBarrierBytes;
  static constexpr int shared_bytes = tiles_at + stages * kTileWords * 4;
};

namespace {

/// Registers of a thread's sums: at 128 columns dq 64, and twice 32 for a tile.
template <int dim, bool limited>
using QueryShape = GradientFlowShape<dim, limited, dim == 64 ? 128 : 64, false>;
/// At 128 columns dk and dv 128, and twice 32 for a tile.
template <int dim, bool limited>
using KeyShape = GradientFlowShape<dim, limited, 64, dim == 128>;

/// Layout of shared memory: own tiles (queries and dout, or keys and values) and other tiles (the
/// other pair), each pair in `stages` buffers, and their barriers.
template <class S>
struct Places {
  static __device__ int own(int stage, int which) { return (2 * stage + which) * S::own_bytes; }
  static __device__ int other(int stage, int which) {
    return 2 * S::stages * S::own_bytes + (2 * stage + which) * S::other_bytes;
  }
  /// Place of lse, delta and first keys of a tile of queries.
  static __device__ float* terms(int stage) {
    return dynamic_shared<float>() + S::terms_at / static_cast<int>(sizeof(float)) +
           stage * S::terms;
  }
  static __device__ Barrier own_full(int stage) { return barrier(0, stage); }
  static __device__ Barrier own_empty(int stage) { return barrier(1, stage); }
  /// Barrier of the pair's first tile, with the terms of its rows, or of the second.
  static __device__ Barrier full(int stage, int which) { return barrier(2 + which, stage); }
  static __device__ Barrier empty(int stage) { return barrier(4, stage); }
  /// Index of the own tile.
  static __device__ int own_tile(int stage) { return S::tiles_at + stage * kTileWords * 4; }
  /// `first_arrivals`: arrivals that complete the first tile of a pair.
  static __device__ void make_barriers(int first_arrivals) {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < S::stages; ++stage) {
        make_barrier(own_full(stage), 1);
        make_barrier(own_empty(stage), S::groups * 4);
        make_barrier(full(stage, 0), first_arrivals);
        make_barrier(full(stage, 1), 1);
        make_barrier(empty(stage), S::groups * 4);
      }
      publish_barriers();
    }
    __syncthreads();
  }

 private:
  static __device__ Barrier barrier(int kind, int stage) {
    return panel_address(S::barriers_at + (kind * S::stages + stage) * kBarrierBytes);
  }
};

/// State shared by all workers of one of the two kernels.
struct BackwardPass {
  AttentionBackwardParams p;
  BoxMap own[2], others[2];
  ItemOrder order;
  WorkCounters* counters;
};

/// Query tiles, counted from the sequence's end, longest first; the last may begin before row 0.
template <class S>
__device__ OwnTile queries_of(const BackwardPass& pass, int index) {
  if (index >= pass.order.count()) {
    return {};
  }
  const ItemOrder::Item item = pass.order.item(index);
  return OwnTile::of(item, pass.p.heads,
                     static_cast<int>(pass.p.seq_len) - (item.tile + 1) * S::rows);
}
template <class S>
__device__ OwnTile keys_of(const BackwardPass& pass, int index) {
  if (index >= pass.order.count()) {
    return {};
  }
  const ItemOrder::Item item = pass.order.item(index);
  return OwnTile::of(item, pass.p.kv_heads, item.tile * S::rows);
}

/// One thread issues copies of own tiles, then of other tiles, as buffers become empty.
template <class S>
class TileCopier {
  using P = Places<S>;

 public:
  __device__ explicit TileCopier(const BackwardPass& pass) : pass_(pass) {}

  /// Without a tile, waiting warpgroups are told so.
  __device__ void copy_own(const OwnTile& tile) {
    const Barrier full = P::own_full(own_.stage());
    await(P::own_empty(own_.stage()), own_.emptied());
    write_tile(P::own_tile(own_.stage()), tile);
    if (!tile.there()) {
      arrive(full);
      return;
    }
    arrive_and_expect(full, 2 * S::own_bytes);
    for (int which = 0; which < 2; ++which) {
      copy_tile<S::dim, S::rows>(P::own(own_.stage(), which), pass_.own[which], full, tile.first,
                                 tile.head, tile.sequence);
    }
    own_.next();
  }
  __device__ void copy_others(int row, int head, int sequence) {
    await(P::empty(ring_.stage()), ring_.emptied());
    for (int which = 0; which < 2; ++which) {
      const Barrier full = P::full(ring_.stage(), which);
      arrive_and_expect(full, S::other_bytes);
      copy_tile<S::dim, S::others>(P::other(ring_.stage(), which), pass_.others[which], full, row,
                                   head, sequence);
    }
    ring_.next();
  }

 private:
  const BackwardPass& pass_;
  SmallRing<S::stages> own_, ring_;
};

/// Products of a warpgroup's rows with another tile: scores and gradients. Own rows stay in shared
/// memory: as left operands in registers for a whole item, which is 2 to 3 % faster, ptxas 13.0
/// assigned their registers to other values while the loop still needed them.
template <class S>
class TileProducts {
  using P = Places<S>;

 public:
  __device__ TileProducts(int own_stage, int group)
      : first_(P::own(own_stage, 0)), second_(P::own(own_stage, 1)), group_(group) {}

  /// Begins both products when their tiles have arrived.
  __device__ void begin(Sums<1, S::others>& scores, Sums<1, S::others>& gradients,
                        const Ring<S::stages>& ring) const {
    await(P::full(ring.stage(), 0), ring.phase());
    begin_products();
    begin_rows<S>(scores, first_, P::other(ring.stage(), 0), group_);
    await(P::full(ring.stage(), 1), ring.phase());
    begin_products();
    begin_rows<S>(gradients, second_, P::other(ring.stage(), 1), group_);
  }

 private:
  int first_, second_, group_;
};

/// Computes dq of a warpgroup's queries.
template <class S>
class QueryGroup {
  using P = Places<S>;

 public:
  __device__ explicit QueryGroup(const BackwardPass& pass)
      : pass_(pass), p_(pass.p), group_(warpgroup_index()) {}

  __device__ void run() {
    for (Ring<S::stages> own;; own.next()) {
      await(P::own_full(own.stage()), own.phase());
      const OwnTile tile = read_tile(P::own_tile(own.stage()));
      if (!tile.there()) {
        return;
      }
      sum(tile, own.stage());
      publish_shared();  // Orders the accesses to the tile before the next copy.
      release(P::own_empty(own.stage()));
    }
  }

  /// First tile of keys that any of the tile's queries sees.
  static __device__ int first_tile(const AttentionBackwardParams& p, const OwnTile& tile) {
    return first_tile(p, tile.sequence, tile.first);
  }
  static __device__ int first_tile(const AttentionBackwardParams& p, int sequence, int query) {
    if constexpr (S::limited) {
      return Sight(p, sequence).first_key(max(query, 0)) / S::others;
    }
    return 0;
  }
  /// One past the last tile that holds keys before `row`.
  static __device__ int tiles_to(const AttentionBackwardParams& p, int row) {
    return (max(min(row, static_cast<int>(p.seq_len)), 0) + S::others - 1) / S::others;
  }

 private:
  struct Row {
    float lse, delta;
    int first_key;
  };
  [[nodiscard]] __device__ Row row_of(const MmaHead& at, int row) const {
    const bool inside = row >= 0;
    Row of{inside ? lse_term(p_, at, row) : INFINITY, inside ? delta_term(p_, at, row) : 0.0F, 0};
    if constexpr (S::limited) {
      of.first_key = Sight(p_, at.sequence).first_key(max(row, 0));
    }
    return of;
  }

  __device__ void sum(const OwnTile& tile, int stage) {
    const MmaHead at = head_at(p_, tile.sequence, tile.head);
    const Lane lane;
    const int own = tile.first + of_warp(warp_index()) * S::warp_rows;
    const Row rows[2] = {row_of(at, own + lane.group), row_of(at, own + 8 + lane.group)};
    const int last_first = S::limited ? row_of(at, own + S::warp_rows - 1).first_key : 0;
    const TileProducts<S> products(stage, group_);
    Sums<1, S::dim> dq;
    clear<1, S::dim>(dq);
    const int of_group = tile.first + group_ * kGroupRows;
    const int end = tiles_to(p_, tile.first + S::rows);
    const int mine = of_group < at.seq_len ? tiles_to(p_, of_group + kGroupRows) : 0;
    const int begin = first_tile(p_, tile.sequence, of_group);
    for (int keys = first_tile(p_, tile); keys < end; ++keys, ring_.next()) {
      if (keys >= begin && keys < mine) {
        const int row = keys * S::others;
        const bool masked = row + S::others > own + 1 || (S::limited && row < last_first);
        add_keys(dq, products, masked, rows, row, own);
      } else {  // Only the other warpgroup sees this tile.
        await(P::full(ring_.stage(), 0), ring_.phase());
        await(P::full(ring_.stage(), 1), ring_.phase());
      }
      release(P::empty(ring_.stage()));
    }
    scale_sums<1, S::dim>(dq, p_.scale);
    sync_threads(1 + group_, kGroupThreads);
    store_panels<S>(p_.dq, p_.dq_layout, at, dq, P::own(stage, 0), tile.first);
  }

  /// Adds the contributions of the keys from `row` on to dq of the warpgroup's queries.
  __device__ void add_keys(Sums<1, S::dim>& dq, const TileProducts<S>& products, bool masked,
                           const Row (&rows)[2], int row, int own) const {
    const Lane lane;
    const auto lse_of = [&](int, int, int i) { return rows[i / 2].lse; };
    Sums<1, S::others> scores;
    Sums<1, S::others> gradients;
    hold_sums(dq[0]);
    products.begin(scores, gradients, ring_);
    wait_for_products<1>();
    hold_sums(scores[0]);
    to_tile_probabilities<S, S::limited>(scores, p_, masked, lse_of, [&](int, int n, int i) {
      const int key = row + n * 8 + lane.pair + i % 2;
      return key <= own + i / 2 * 8 + lane.group && (!S::limited || key >= rows[i / 2].first_key);
    });
    wait_for_products<0>();
    hold_sums(gradients[0]);
    to_tile_gradients<S, S::limited>(gradients, scores, p_, lse_of,
                                     [&](int, int, int i) { return rows[i / 2].delta; });
    Rounded<S> rounded;
    round_scores<S>(rounded, gradients);
    begin_products();
    begin_sums<S>(dq, rounded, P::other(ring_.stage(), 0));
    wait_for_products<0>();
    hold_sums(dq[0]);
  }

  const BackwardPass& pass_;
  const AttentionBackwardParams& p_;
  int group_;
  Ring<S::stages> ring_;
};

template <class S>
__device__ void copy_for_queries(const BackwardPass& pass) {
  const ItemQueue queue(pass.counters);
  TileCopier<S> copier(pass);
  for (int index = queue.first();; index = queue.next()) {
    const OwnTile tile = queries_of<S>(pass, index);
    copier.copy_own(tile);
    if (!tile.there()) {
      break;
    }
    const int kv_head = tile.head / heads_of_group(pass.p);
    const int end = QueryGroup<S>::tiles_to(pass.p, tile.first + S::rows);
    for (int keys = QueryGroup<S>::first_tile(pass.p, tile); keys < end; ++keys) {
      copier.copy_others(keys * S::others, kv_head, tile.sequence);
    }
  }
  queue.leave();
}

/// Iterates over the query tiles that see any of a tile's keys: for each query head of the group in
/// order, from the keys' row on.
template <class S>
struct SeeingTiles {
  int begin, end;        ///< Range of queries within a head.
  int head, heads_left;  ///< Heads left in the group, this one included.
  int query;

  __device__ SeeingTiles(const AttentionBackwardParams& p, const OwnTile& tile)
      : begin(tile.first / S::others * S::others),
        end(static_cast<int>(p.seq_len)),
        head(tile.head * heads_of_group(p)),
        heads_left(heads_of_group(p)),
        query(begin) {
    if constexpr (S::limited) {
      end = Sight(p, tile.sequence).end_of_queries(min(tile.first + S::rows, end) - 1);
    }
  }
  [[nodiscard]] __device__ bool there() const { return heads_left > 0; }
  __device__ void next() {
    query += S::others;
    if (query >= end) {
      query = begin;
      ++head;
      --heads_left;
    }
  }
};

/// Computes dk and dv of a warpgroup's keys.
template <class S>
class KeyGroup {
  using P = Places<S>;

 public:
  __device__ explicit KeyGroup(const BackwardPass& pass)
      : pass_(pass), p_(pass.p), group_(warpgroup_index()) {}

  __device__ void run() {
    for (Ring<S::stages> own;; own.next()) {
      await(P::own_full(own.stage()), own.phase());
      const OwnTile tile = read_tile(P::own_tile(own.stage()));
      if (!tile.there()) {
        return;
      }
      sum(tile, own.stage());
      publish_shared();  // Orders the accesses to the tile before the next copy.
      release(P::own_empty(own.stage()));
    }
  }

 private:
  __device__ void sum(const OwnTile& tile, int stage) {
    const TileProducts<S> products(stage, group_);
    Sums<1, S::dim> dk;
    Sums<1, S::dim> dv;
    clear<1, S::dim>(dk);
    clear<1, S::dim>(dv);
    const int of_group = tile.first + group_ * kGroupRows;
    const int own = tile.first + of_warp(warp_index()) * S::warp_rows;
    for (SeeingTiles<S> tiles(p_, tile); tiles.there(); tiles.next(), ring_.next()) {
      if (tiles.query + S::others > of_group) {
        add_queries(dk, dv, products, tiles.query, own);
      } else {  // These queries see only keys of the other warpgroup.
        await(P::full(ring_.stage(), 0), ring_.phase());
        await(P::full(ring_.stage(), 1), ring_.phase());
      }
      release(P::empty(ring_.stage()));
    }
    scale_sums<1, S::dim>(dk, p_.scale);
    const MmaHead at = head_at(p_, tile.sequence, tile.head);
    sync_threads(1 + group_, kGroupThreads);
    store_panels<S>(p_.dk, p_.dk_layout, at, dk, P::own(stage, 0), tile.first);
    store_panels<S>(p_.dv, p_.dv_layout, at.of(tile.head, p_.value_dim), dv, P::own(stage, 1),
                    tile.first);
  }

  /// Adds the contributions of the queries from `query` on to dk and dv of the warpgroup's keys.
  __device__ void add_queries(Sums<1, S::dim>& dk, Sums<1, S::dim>& dv,
                              const TileProducts<S>& products, int query, int own) const {
    const Lane lane;
    const float* lse = P::terms(ring_.stage());
    const float* delta = lse + S::others;
    const int* first_keys = reinterpret_cast<const int*>(lse + 2 * S::others);
    const auto row_of = [&](int n, int i) { return n * 8 + lane.pair + i % 2; };
    const auto lse_of = [&](int, int n, int i) { return lse[row_of(n, i)]; };
    Sums<1, S::others> scores;
    Sums<1, S::others> gradients;
    hold_sums(dv[0]);
    hold_sums(dk[0]);
    products.begin(scores, gradients, ring_);
    bool masked = query + 1 < own + S::warp_rows;
    if constexpr (S::limited) {
      masked = masked || first_keys[S::others - 1] > own;
    }
    wait_for_products<1>();
    hold_sums(scores[0]);
    to_tile_probabilities<S, S::limited>(scores, p_, masked, lse_of, [&](int, int n, int i) {
      const int key = own + i / 2 * 8 + lane.group;
      return key <= query + row_of(n, i) && (!S::limited || key >= first_keys[row_of(n, i)]);
    });
    Rounded<S> probabilities;
    round_scores<S>(probabilities, scores);
    begin_products();
    begin_sums<S>(dv, probabilities, P::other(ring_.stage(), 1));
    wait_for_products<1>();
    hold_sums(gradients[0]);
    to_tile_gradients<S, S::limited>(gradients, scores, p_, lse_of,
                                     [&](int, int n, int i) { return delta[row_of(n, i)]; });
    Rounded<S> rounded;
    round_scores<S>(rounded, gradients);
    begin_products();
    begin_sums<S>(dk, rounded, P::other(ring_.stage(), 0));
    wait_for_products<0>();
    hold_sums(dv[0]);
    hold_sums(dk[0]);
  }

  const BackwardPass& pass_;
  const AttentionBackwardParams& p_;
  int group_;
  Ring<S::stages> ring_;
};

/// One thread of a warp issues the copies; all lanes together compute which queries see which keys.
template <class S>
__device__ void copy_for_keys(const BackwardPass& pass) {
  const ItemQueue queue(pass.counters);
  TileCopier<S> copier(pass);
  const bool copies = Lane().index == 0;
  for (int index = queue.first();; index = of_warp(copies ? queue.next() : 0)) {
    const OwnTile tile = keys_of<S>(pass, index);
    if (copies) {
      copier.copy_own(tile);
    }
    if (!tile.there()) {
      break;
    }
    SeeingTiles<S> tiles(pass.p, tile);
    if (copies) {
#pragma unroll 1
      for (; tiles.there(); tiles.next()) {
        copier.copy_others(tiles.query, tiles.head, tile.sequence);
      }
    }
  }
  if (copies) {
    queue.leave();
  }
}

/// A few warps write the terms of a tile's queries, 32 each; its lanes begin at row `own_row`.
template <class S>
__device__ void write_terms(const BackwardPass& pass, int own_row) {
  using P = Places<S>;
  const AttentionBackwardParams& p = pass.p;
  SmallRing<S::stages> ring;
  for (SmallRing<S::stages> own;; own.next()) {
    await(P::own_full(own.stage()), own.phase());
    const OwnTile tile = read_tile(P::own_tile(own.stage()));
    if (!tile.there()) {
      return;
    }
#pragma unroll 1
    for (SeeingTiles<S> tiles(p, tile); tiles.there(); tiles.next(), ring.next()) {
      const MmaHead at = head_at(p, tile.sequence, tiles.head);
      await(P::empty(ring.stage()), ring.emptied());
      float* terms = P::terms(ring.stage());
      const int query = tiles.query + own_row;
      terms[own_row] = lse_term(p, at, query);
      terms[S::others + own_row] = delta_term(p, at, query);
      if constexpr (S::limited) {
        terms[2 * S::others + own_row] = __int_as_float(Sight(p, tile.sequence).first_key(query));
      }
      release(P::full(ring.stage(), 0));
    }
  }
}

template <class S>
__global__ void __launch_bounds__(S::threads, 1)
    attention_query_gradient_wgmma_kernel(const __grid_constant__ BackwardPass pass) {
  if constexpr (kCompiledForWarpgroups) {
    Places<S>::make_barriers(1);
    if (warpgroup_index() == S::groups) {
      give_registers<S::copier_registers>();
      if (threadIdx.x == S::groups * kGroupThreads) {
        copy_for_queries<S>(pass);
      }
      return;
    }
    take_registers<S::registers>();
    QueryGroup<S>(pass).run();
  }
}

template <class S>
__global__ void __launch_bounds__(S::threads, 1)
    attention_key_gradient_wgmma_kernel(const __grid_constant__ BackwardPass pass) {
  if constexpr (kCompiledForWarpgroups) {
    Places<S>::make_barriers(1 + S::others / kWarpSize);
    if (warpgroup_index() == S::groups) {
      give_registers<S::copier_registers>();
      const int me = static_cast<int>(threadIdx.x) - S::groups * kGroupThreads;
      if (me < kWarpSize) {
        copy_for_keys<S>(pass);
      } else if (me >= kWarpSize && me < kWarpSize + S::others) {
        write_terms<S>(pass, me - kWarpSize);
      }
      return;
    }
    take_registers<S::registers>();
    KeyGroup<S>(pass).run();
  }
}

/// The four input tensors as own rows and other rows: queries and dout, keys and values.
template <class S>
BackwardPass pass_of(CudaStream& stream, const AttentionBackwardParams& p, bool own_queries) {
  const auto map = [&](const void* data, std::int64_t columns, std::int64_t heads,
                       const RowLayout& layout, bool own) {
    return box_map(data, columns, p.seq_len, heads, p.sequences, layout, own ? S::rows : S::others);
  };
  const BoxMap q = map(p.q, p.head_dim, p.heads, p.q_layout, own_queries);
  const BoxMap dout = map(p.dout, p.value_dim, p.heads, p.dout_layout, own_queries);
  const BoxMap k = map(p.k, p.head_dim, p.kv_heads, p.k_layout, !own_queries);
  const BoxMap v = map(p.v, p.value_dim, p.kv_heads, p.v_layout, !own_queries);
  const std::int64_t tiles = divide_up(p.seq_len, std::int64_t{S::rows});
  const std::int64_t head_bytes = p.seq_len * S::dim * 4;  // Bytes per head of the other pair.
  if (own_queries) {
    return {p,
            {q, dout},
            {k, v},
            order_of_items(p.sequences * p.heads, tiles, head_bytes),
            stream.work_counters()};
  }
  return {p,
          {k, v},
          {q, dout},
          order_of_items(p.sequences * p.kv_heads, tiles, head_bytes * p.heads / p.kv_heads),
          stream.work_counters()};
}

template <int dim, bool limited>
void launch_gradients(CudaStream& stream, const AttentionBackwardParams& p) {
  using Q = QueryShape<dim, limited>;
  const BackwardPass queries = pass_of<Q>(stream, p, true);
  allow_shared_bytes(attention_query_gradient_wgmma_kernel<Q>, Q::shared_bytes);
  launch(stream, attention_query_gradient_wgmma_kernel<Q>,
         flow_grid(queries.order, Q::threads, Q::shared_bytes), queries);
  using K = KeyShape<dim, limited>;
  const BackwardPass keys = pass_of<K>(stream, p, false);
  allow_shared_bytes(attention_key_gradient_wgmma_kernel<K>, K::shared_bytes);
  launch(stream, attention_key_gradient_wgmma_kernel<K>,
         flow_grid(keys.order, K::threads, K::shared_bytes), keys);
}

}  // namespace

void attention_gradients_wgmma(CudaStream& stream, const AttentionBackwardParams& p) {
  const auto launch_for = [&]<int dim>() {
    limits_sight(p) ? launch_gradients<dim, true>(stream, p)
                    : launch_gradients<dim, false>(stream, p);
  };
  widest_head(p) <= 64 ? launch_for.template operator()<64>()
                       : launch_for.template operator()<128>();
}

}  // namespace train::kernels::cuda
