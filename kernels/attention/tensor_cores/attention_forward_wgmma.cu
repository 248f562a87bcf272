#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/tensor_cores/attention_flow.cuh"
#include "kernels/attention/tensor_cores/attention_mma.cuh"
#include "kernels/attention/tensor_cores/attention_panels.cuh"
#include "kernels/attention/tensor_cores/attention_softmax.cuh"

namespace train::kernels::cuda {

// A warpgroup has 64 queries, and reads keys and values from shared memory once for four warps.
// While the tensor cores multiply one tile's probabilities by its values and the next tile's keys
// by the queries, threads compute the exponentials of finished scores. Heads of 128 columns take 64
// registers of a thread for outputs, 64 for scores, 32 for probabilities, so there are two
// warpgroups. Heads of 64 columns need as many exponentials for half of the products: three
// warpgroups.
template <int dim_, bool limited_>
struct ForwardFlowShape {
  static constexpr int dim = dim_;
  static constexpr bool limited = limited_;
  static constexpr int blocks = 1;  ///< 16-row blocks of a warp.
  static constexpr int warp_rows = 16;
  static constexpr int groups = dim == 64 ? 3 : 2;
  static constexpr int rows = groups * kGroupRows;
  static constexpr int others = 128;
  static constexpr int threads = (groups + 1) * kGroupThreads;
  static constexpr int registers = groups == 3 ? 160 : 232;
  static constexpr int copier_registers = groups == 3 ? 32 : 40;
  static constexpr int stages = 2;
  static constexpr int own_bytes = rows * dim * 2;
  static constexpr int other_bytes = others * dim * 2;
  static constexpr int places_bytes = groups * kGroupThreads * 4;
  static constexpr int barriers = 3 * 2 * stages;
  static constexpr int held_at = stages * (own_bytes + 2 * other_bytes);
  static constexpr int barriers_at = held_at + places_bytes;
  static constexpr int tiles_at = barriers_at + barriers * kBarrierBytes;
  static constexpr int shared_bytes = tiles_at + stages * kTileWords * 4;
};

namespace {

/// Layout of shared memory: queries, keys and values for each stage, and their barriers.
template <class S>
struct Places {
  enum Of { queries = 0, keys = 1, values = 2 };

  static __device__ int tile(Of of, int stage) {
    return of == queries
               ? stage * S::own_bytes
               : S::stages * S::own_bytes + ((of - keys) * S::stages + stage) * S::other_bytes;
  }
  static __device__ Barrier full(Of of, int stage) { return barrier(2 * of, stage); }
  static __device__ Barrier empty(Of of, int stage) { return barrier(2 * of + 1, stage); }
  /// Index of the query tile.
  static __device__ int own_tile(int stage) { return S::tiles_at + stage * kTileWords * 4; }
  static __device__ void make_barriers() {
    if (threadIdx.x == 0) {
      for (const Of of : {queries, keys, values}) {
        for (int stage = 0; stage < S::stages; ++stage) {
          make_barrier(full(of, stage), 1);
          make_barrier(empty(of, stage), S::groups * 4);
        }
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

/// State shared by all workers of the pass.
struct ForwardPass {
  AttentionForwardParams p;
  BoxMap q, k, v;
  ItemOrder order;
  WorkCounters* counters;
};

/// Tile of queries, with the tiles of keys from row `begin` on that any of them sees.
template <class S>
struct ForwardItem {
  OwnTile own;
  int begin = 0;
  int tiles;

  /// Tiles are counted from the sequence's end; the last one may begin before row 0.
  static __device__ OwnTile own_tile(const ForwardPass& pass, int index) {
    if (index >= pass.order.count()) {
      return {};
    }
    const ItemOrder::Item item = pass.order.item(index);
    return OwnTile::of(item, pass.p.heads,
                       static_cast<int>(pass.p.seq_len) - (item.tile + 1) * S::rows);
  }

  __device__ ForwardItem(const AttentionForwardParams& p, const OwnTile& tile) : own(tile) {
    if constexpr (S::limited) {
      begin = Sight(p, own.sequence).first_key(max(own.first, 0)) / S::others * S::others;
    }
    tiles = tiles_to(p, own.first + S::rows);
  }
  [[nodiscard]] __device__ int tile_of(int row) const { return (row - begin) / S::others; }
  [[nodiscard]] __device__ int tiles_to(const AttentionForwardParams& p, int end) const {
    return (min(end, static_cast<int>(p.seq_len)) - begin + S::others - 1) / S::others;
  }
};

/// One thread issues copies of the tiles of all the block's items, as buffers become empty.
template <class S>
__device__ void copy_tiles(const ForwardPass& pass) {
  using P = Places<S>;
  const ItemQueue queue(pass.counters);
  Ring<S::stages> own;
  Ring<S::stages> ring;
  for (int index = queue.first();; own.next()) {
    await(P::empty(P::queries, own.stage()), own.emptied());
    const Barrier own_full = P::full(P::queries, own.stage());
    const OwnTile tile = ForwardItem<S>::own_tile(pass, index);
    write_tile(P::own_tile(own.stage()), tile);
    if (!tile.there()) {
      arrive(own_full);
      break;
    }
    const ForwardItem<S> item(pass.p, tile);
    arrive_and_expect(own_full, S::own_bytes);
    copy_tile<S::dim, S::rows>(P::tile(P::queries, own.stage()), pass.q, own_full, tile.first,
                               tile.head, tile.sequence);
    index = queue.next();
    const int kv_head = tile.head / heads_of_group(pass.p);
    for (int i = 0; i < item.tiles; ++i, ring.next()) {
      const auto copy = [&](typename P::Of of, const BoxMap& from) {
        await(P::empty(of, ring.stage()), ring.emptied());
        arrive_and_expect(P::full(of, ring.stage()), S::other_bytes);
        copy_tile<S::dim, S::others>(P::tile(of, ring.stage()), from, P::full(of, ring.stage()),
                                     item.begin + i * S::others, kv_head, tile.sequence);
      };
      copy(P::keys, pass.k);
      copy(P::values, pass.v);
    }
  }
  queue.leave();
}

/// Keys visible to a warp's queries.
template <class S>
struct WarpSight {
  int own;            ///< The warp's first query.
  int first_keys[2];  ///< First visible key of each of the lane's queries.
  int last_first;     ///< First visible key of the warp's last query: the largest.

  __device__ WarpSight(const AttentionForwardParams& p, int sequence, int first)
      : own(first + of_warp(warp_index()) * S::warp_rows), first_keys{0, 0}, last_first(0) {
    if constexpr (S::limited) {
      const Sight sight(p, sequence);
      const Lane lane;
      first_keys[0] = sight.first_key(max(own + lane.group, 0));
      first_keys[1] = sight.first_key(max(own + 8 + lane.group, 0));
      last_first = sight.first_key(max(own + S::warp_rows - 1, 0));
    }
  }

  /// Prepares scores of a tile of keys from `row` on for the softmax: capped, and -infinity where a
  /// query does not see a key.
  __device__ void mask(Sums<1, S::others>& scores, const AttentionForwardParams& p, int row) const {
    bool masked = row + S::others > own + 1;
    if constexpr (S::limited) {
      if (p.softcap != 0.0F) {
        cap_scores<S>(scores, p.scale, p.softcap);
      }
      masked = masked || row < last_first;
    }
    if (masked) {
      mask_scores<S>(scores, own, row,
                     [&](int, int half) { return S::limited ? first_keys[half] : 0; });
    }
  }
};

/// Walk of a warpgroup along the tiles of keys and values of its items.
template <class S>
class ForwardGroup {
  using P = Places<S>;

 public:
  __device__ explicit ForwardGroup(const ForwardPass& pass)
      : pass_(pass),
        group_(warpgroup_index()),
        scale_log2_(S::limited ? scale_of_scores(pass.p) : pass.p.scale * kLog2OfE),
        held_(panel_address(S::held_at + static_cast<int>(threadIdx.x) * 4)) {}

  __device__ void run() {
    for (Ring<S::stages> own;; own.next()) {
      await(P::full(P::queries, own.stage()), own.phase());
      const OwnTile tile = read_tile(P::own_tile(own.stage()));
      if (!tile.there()) {
        return;
      }
      attend(ForwardItem<S>(pass_.p, tile), P::tile(P::queries, own.stage()));
      publish_shared();  // Orders the accesses to the tile before the next copy.
      release(P::empty(P::queries, own.stage()));
    }
  }

 private:
  /// Computes the warpgroup's outputs of an item whose queries lie at place `queries`.
  __device__ void attend(const ForwardItem<S>& item, int queries) {
    const AttentionForwardParams& p = pass_.p;
    const MmaHead at = head_at(p, item.own.sequence, item.own.head);
    const int of_group = item.own.first + group_ * kGroupRows;
    const WarpSight<S> sight(p, item.own.sequence, item.own.first);
    int begin = 0;
    int end = of_group < at.seq_len ? max(item.tiles_to(p, of_group + kGroupRows), 0) : 0;
    if constexpr (S::limited) {
      begin = min(item.tile_of(Sight(p, at.sequence).first_key(max(of_group, 0))), end);
    }
    Sums<1, S::dim> out;
    clear<1, S::dim>(out);
    RunningSoftmax<S, S::limited> softmax;
    pass_by(0, begin);
    if (begin < end) {
      walk(item, queries, begin, end, sight, out, softmax);
    }
    pass_by(end, item.tiles);
    softmax.finish(out, p.lse + at.first_row(p.heads), sight.own, at.seq_len,
                   S::limited && p.softcap != 0.0F ? 1.0F : p.scale,
                   S::limited ? sink_of(p, at.head) : nullptr);
    sync_threads(1 + group_, kGroupThreads);
    store_panels<S>(p.out, p.out_layout, at.of(at.head, p.value_dim), out, queries, item.own.first);
  }

  /// Skips tiles that only other warpgroups see.
  __device__ void pass_by(int begin, int end) {
    for (int tile = begin; tile < end; ++tile) {
      await(P::full(P::keys, keys_.stage()), keys_.phase());
      done_with(P::keys, keys_);
      await(P::full(P::values, values_.stage()), values_.phase());
      done_with(P::values, values_);
    }
  }

  __device__ void walk(const ForwardItem<S>& item, int queries, int begin, int end,
                       const WarpSight<S>& sight, Sums<1, S::dim>& out,
                       RunningSoftmax<S, S::limited>& softmax) {
    Sums<1, S::others> scores;
    Rounded<S> probabilities;
    await(P::full(P::keys, keys_.stage()), keys_.phase());
    begin_products();
    begin_rows<S>(scores, queries, P::tile(P::keys, keys_.stage()), group_);
    wait_for_products<0>();
    hold_sums(scores[0]);
    done_with(P::keys, keys_);
    float keep[2];
    const auto take = [&](int tile) {
      sight.mask(scores, pass_.p, item.begin + tile * S::others);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        keep[half] = softmax.exponentials(scores[0], 0, half, scale_log2_);
      }
    };
    take(begin);
    round_scores<S>(probabilities, scores);
    for (int tile = begin + 1; tile < end; ++tile) {
      await(P::full(P::keys, keys_.stage()), keys_.phase());
      hold_sums(out[0]);
      begin_products();
      begin_rows<S>(scores, queries, P::tile(P::keys, keys_.stage()), group_);
      await(P::full(P::values, values_.stage()), values_.phase());
      begin_products();
      begin_sums<S>(out, probabilities, P::tile(P::values, values_.stage()));
      wait_for_products<1>();
      hold_sums(scores[0]);
      done_with(P::keys, keys_);
      take(tile);
      compute_here(softmax.sum[0][0] + softmax.sum[0][1], held_);
      wait_for_products<0>();
      hold_sums(out[0]);
      done_with(P::values, values_);
      softmax.follow(out[0], 0, keep[0]);
      softmax.follow(out[0], 1, keep[1]);
      round_scores<S>(probabilities, scores);
    }
    await(P::full(P::values, values_.stage()), values_.phase());
    hold_sums(out[0]);
    begin_products();
    begin_sums<S>(out, probabilities, P::tile(P::values, values_.stage()));
    wait_for_products<0>();
    hold_sums(out[0]);
    done_with(P::values, values_);
  }

  __device__ void done_with(typename P::Of of, Ring<S::stages>& ring) {
    release(P::empty(of, ring.stage()));
    ring.next();
  }

  const ForwardPass& pass_;
  int group_;
  float scale_log2_;
  SharedAddress held_;
  Ring<S::stages> keys_, values_;
};

template <class S>
__global__ void __launch_bounds__(S::threads, 1)
    attention_forward_wgmma_kernel(const __grid_constant__ ForwardPass pass) {
  if constexpr (kCompiledForWarpgroups) {
    Places<S>::make_barriers();
    if (warpgroup_index() == S::groups) {
      give_registers<S::copier_registers>();
      if (threadIdx.x == S::groups * kGroupThreads) {
        copy_tiles<S>(pass);
      }
      return;
    }
    take_registers<S::registers>();
    ForwardGroup<S>(pass).run();
  }
}

template <int dim, bool limited>
void launch_forward(CudaStream& stream, const AttentionForwardParams& p) {
  using S = ForwardFlowShape<dim, limited>;
  const auto map = [&](const void* data, std::int64_t columns, std::int64_t heads,
                       const RowLayout& layout, int rows) {
    return box_map(data, columns, p.seq_len, heads, p.sequences, layout, rows);
  };
  // Keys and values of a head are shared by the query heads of a group.
  const std::int64_t head_bytes = p.seq_len * dim * 4 * p.kv_heads / p.heads;
  const ForwardPass pass{p,
                         map(p.q, p.head_dim, p.heads, p.q_layout, S::rows),
                         map(p.k, p.head_dim, p.kv_heads, p.k_layout, S::others),
                         map(p.v, p.value_dim, p.kv_heads, p.v_layout, S::others),
                         order_of_items(p.sequences * p.heads,
                                        divide_up(p.seq_len, std::int64_t{S::rows}), head_bytes),
                         stream.work_counters()};
  const Grid grid = flow_grid(pass.order, S::threads, S::shared_bytes);
  allow_shared_bytes(attention_forward_wgmma_kernel<S>, grid.shared_bytes);
  launch(stream, attention_forward_wgmma_kernel<S>, grid, pass);
}

}  // namespace

void attention_forward_wgmma(CudaStream& stream, const AttentionForwardParams& p) {
  const auto launch_for = [&]<int dim>() {
    limits_sight(p) ? launch_forward<dim, true>(stream, p) : launch_forward<dim, false>(stream, p);
  };
  widest_head(p) <= 64 ? launch_for.template operator()<64>()
                       : launch_for.template operator()<128>();
}

}  // namespace train::kernels::cuda
