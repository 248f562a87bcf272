#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/attention_mma.cuh"
#include "kernels/attention/attention_panels.cuh"
#include "kernels/attention/attention_softmax.cuh"

namespace train::kernels::cuda {
namespace {

// Two warpgroups have 64 queries each, and read keys and values from shared memory once for four
// warps. While the tensor cores multiply one tile's probabilities with its values and the next
// tile's keys with the queries, threads take the exponentials of what is there. Heads of 128
// columns: 64 registers of a thread for outputs, 64 for scores, 32 for probabilities, one block on
// a multiprocessor. Heads of 64 columns need as many exponentials for half of the products: tiles
// of 64 keys leave registers for two blocks, of which one multiplies while the other does not;
// where sight is limited, for one.
template <int dim, bool limited>
struct WgmmaShape : MmaShape<dim, 8, 1, dim == 64 || limited ? 64 : 128> {
  static constexpr int blocks_at_once = dim == 64 && !limited ? 2 : 1;
};
/// Where tiles lie in shared memory: queries, two of keys, two of values.
template <class S>
struct Places {
  static __device__ int keys(int tile) { return S::own_bytes + tile % 2 * S::other_bytes; }
  static __device__ int values(int tile) { return keys(tile) + 2 * S::other_bytes; }
};

/// What a block walks along: tiles of keys from row `begin` on.
template <class S, bool limited>
struct ForwardWalk {
  const AttentionForwardParams& p;
  MmaHead at;
  int first;             ///< Of the block's queries.
  int own;               ///< Of the warp's.
  int begin, tiles;      ///< The block's.
  int mine;              ///< Tiles that the warpgroup's queries see.
  const int* first_key;  ///< That each of the block's queries sees, where sight is limited.

  __device__ void load_tile_of(bool values, int tile) const {
    if (tile >= tiles) {
      return;
    }
    using TilePlaces = PanelPlaces<S::others>;
    const int kv_head = at.head / heads_of_group(p);
    const int row = begin + tile * S::others;
    if (values) {
      load_tile<S::dim, S::others, S::threads, TilePlaces>(
          Places<S>::values(tile), at.of(kv_head, p.value_dim), p.v, p.v_layout, row);
    } else {
      load_tile<S::dim, S::others, S::threads, TilePlaces>(
          Places<S>::keys(tile), at.of(kv_head, p.head_dim), p.k, p.k_layout, row);
    }
  }

  /// Scores as the softmax takes them: capped, and minus infinity where a query does not see a key.
  __device__ void mask(Sums<1, S::others>& scores, int tile) const {
    const int row = begin + tile * S::others;
    if constexpr (limited) {
      if (p.softcap != 0.0F) {
        cap_scores<S>(scores, p.scale, p.softcap);
      }
    }
    const int* of_warp = first_key + (own - first);
    bool masked = row + S::others > own + 1;
    if constexpr (limited) {
      masked = masked || row < of_warp[S::warp_rows - 1];
    }
    if (masked) {
      mask_scores<S>(scores, own, row, [&](int m, int half) {
        return limited ? of_warp[m * 16 + half * 8 + Lane().group] : 0;
      });
    }
  }

  /// Tile `tile` of values is there, and the next one of keys; those before have been used.
  __device__ void next(int tile) const {
    await_tile();
    load_tile_of(true, tile + 1);
    load_tile_of(false, tile + 2);
    commit_copies();
  }
};

/// The outputs of a warpgroup, of which next() has been called for all tiles of the block.
template <class S, bool limited>
__device__ void walk_along(const ForwardWalk<S, limited>& walk, Sums<1, S::dim>& out,
                           RunningSoftmax<S, limited>& softmax, float scale_log2) {
  Sums<1, S::others> scores;
  Rounded<S> probabilities;
  float keep[2];
  const auto take = [&](int tile) {
    walk.mask(scores, tile);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      keep[half] = softmax.exponentials(scores[0], 0, half, scale_log2);
    }
  };
  if (walk.mine > 0) {
    begin_products();
    begin_scores<S>(scores, 0, Places<S>::keys(0));
    wait_for_products<0>();
    hold_sums(scores[0]);
    take(0);
    round_scores<S>(probabilities, scores);
  }
  for (int tile = 0; tile < walk.tiles; ++tile) {
    walk.next(tile);
    if (tile + 1 < walk.mine) {
      hold_sums(out[0]);
      begin_products();
      begin_scores<S>(scores, 0, Places<S>::keys(tile + 1));
      begin_sums<S>(out, probabilities, Places<S>::values(tile));
      wait_for_products<1>();
      hold_sums(scores[0]);
      take(tile + 1);
      wait_for_products<0>();
      hold_sums(out[0]);
      softmax.follow(out[0], 0, keep[0]);
      softmax.follow(out[0], 1, keep[1]);
      round_scores<S>(probabilities, scores);
    } else if (tile + 1 == walk.mine) {
      hold_sums(out[0]);
      begin_products();
      begin_sums<S>(out, probabilities, Places<S>::values(tile));
      wait_for_products<0>();
      hold_sums(out[0]);
    }
  }
}

/// One tile of queries against every tile of keys that one of them sees. `limited`: see
/// limits_sight().
template <int dim, bool limited>
__device__ void attend(const AttentionForwardParams& p, bool aligned) {
  using S = WgmmaShape<dim, limited>;
  const MmaHead at(p, p.heads, aligned);
  // The longest rows first, so that the last blocks to finish are short ones.
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * S::rows;
  int begin = 0;
  int* first_keys = dynamic_shared<int>() + S::shared_bytes(1) / static_cast<int>(sizeof(int));
  load_tile<dim, S::rows, S::threads, PanelPlaces<S::rows>>(0, at, p.q, p.q_layout, first);
  if constexpr (limited) {
    begin = find_first_keys<S>(first_keys, Sight(p, at.sequence), first);
  }
  const auto tiles_to = [&](int end) {
    return (min(end, at.seq_len) - begin + S::others - 1) / S::others;
  };
  const int of_group = first + group_row();  // Its first query.
  const ForwardWalk<S, limited> walk{p,
                                     at,
                                     first,
                                     first + warp_index() * S::warp_rows,
                                     begin,
                                     tiles_to(first + S::rows),
                                     of_group < at.seq_len ? tiles_to(of_group + group_rows) : 0,
                                     first_keys};
  walk.load_tile_of(false, 0);
  commit_copies();
  walk.load_tile_of(true, 0);
  walk.load_tile_of(false, 1);
  commit_copies();
  wait_for_copies<1>();
  publish_shared();
  __syncthreads();
  Sums<1, dim> out;
  clear<1, dim>(out);
  RunningSoftmax<S, limited> softmax;
  walk_along<S, limited>(walk, out, softmax, limited ? scale_of_scores(p) : p.scale * log2_of_e);
  softmax.finish(out, p.lse + at.first_row(p.heads), walk.own, at.seq_len,
                 limited && p.softcap != 0.0F ? 1.0F : p.scale);
  __syncthreads();  // No warpgroup reads the queries any more.
  store_sums<S, dim>(p.out, p.out_layout, at.of(at.head, p.value_dim), out, 0, first, 0);
}

template <int dim, bool limited>
__global__ void __launch_bounds__(WgmmaShape<dim, limited>::threads,
                                  WgmmaShape<dim, limited>::blocks_at_once)
    attention_forward_wgmma_kernel(AttentionForwardParams p, bool aligned) {
  if constexpr (compiled_for_warpgroups) {
    attend<dim, limited>(p, aligned);
  }
}

template <int dim, bool limited>
void launch_forward(CudaStream& stream, const AttentionForwardParams& p, bool aligned) {
  using S = WgmmaShape<dim, limited>;
  constexpr int row_bytes = limited ? S::rows * static_cast<int>(sizeof(int)) : 0;
  const Grid grid = mma_grid<S>(p.sequences * p.heads, p.seq_len, 1, row_bytes, 1);
  allow_shared_bytes(attention_forward_wgmma_kernel<dim, limited>, grid.shared_bytes);
  launch(stream, attention_forward_wgmma_kernel<dim, limited>, grid, p, aligned);
}

}  // namespace

void attention_forward_wgmma(CudaStream& stream, const AttentionForwardParams& p) {
  const bool aligned = p.head_dim % chunk_columns == 0 && p.value_dim % chunk_columns == 0 &&
                       chunks_aligned(p.q, p.q_layout) && chunks_aligned(p.k, p.k_layout) &&
                       chunks_aligned(p.v, p.v_layout) && chunks_aligned(p.out, p.out_layout);
  const auto launch_for = [&]<int dim>() {
    if (limits_sight(p)) {
      launch_forward<dim, true>(stream, p, aligned);
    } else {
      launch_forward<dim, false>(stream, p, aligned);
    }
  };
  widest_head(p) <= 64 ? launch_for.template operator()<64>()
                       : launch_for.template operator()<128>();
}

}  // namespace train::kernels::cuda
