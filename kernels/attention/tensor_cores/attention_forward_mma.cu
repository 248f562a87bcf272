#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/tensor_cores/attention_mma.cuh"
#include "kernels/attention/tensor_cores/attention_softmax.cuh"

namespace train::kernels::cuda {
namespace {

// Choice of tile sizes: a warp has 32 queries, whose 128 columns take 128 of a lane's 255 registers
// and whose scores of 64 keys take 64 more. So each key and value read from shared memory, which is
// no faster than the tensor cores, serves two products, and 128 queries per block keep memory reads
// as rare as four warps allow. On sm_90 two blocks share a multiprocessor (96 of 227 KiB and half
// of the registers each), so that one computes exponentials while the other multiplies; sm_80 has
// memory for one block of 128 columns. Heads of 256 columns have registers for 16 queries per warp,
// and twice the warps. With limited sight, 128 columns leave registers for only 32 keys at a time.
template <int dim, bool limited>
struct ForwardShape : MmaShape<dim, 4, 2, limited && dim == 128 ? 32 : 64> {
  static constexpr int blocks_at_once = 2;
};
template <bool limited>
struct ForwardShape<256, limited> : MmaShape<256, 8, 1, 32> {
  static constexpr int blocks_at_once = 1;
};

/// Computes one tile of queries over all tiles of keys that any of them sees; the next tile is
/// copied to shared memory while the current one is multiplied. `limited`: see limits_sight().
template <int dim, bool limited>
__global__ void __launch_bounds__(ForwardShape<dim, limited>::threads,
                                  ForwardShape<dim, limited>::blocks_at_once)
    attention_forward_mma_kernel(AttentionForwardParams p, bool aligned) {
  using S = ForwardShape<dim, limited>;
  constexpr int keys = S::own_bytes;  // Layout of shared memory: queries, then pairs.
  const MmaHead at(p, p.heads, aligned);
  // Longest rows first, so that the last blocks to finish are short.
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * S::rows;
  const int own = first + warp_index() * S::warp_rows;
  const int end = min(first + S::rows, at.seq_len);
  int begin = 0;
  // First visible key of each of the block's queries.
  int* first_keys = dynamic_shared<int>() + S::shared_bytes(1) / static_cast<int>(sizeof(int));
  load_tile<dim, S::rows, S::threads>(0, at, p.q, p.q_layout, first);
  if constexpr (limited) {
    begin = find_first_keys<S>(first_keys, Sight(p, at.sequence), first);
  }
  const auto pair = [&](int first_key) {
    return keys + first_key / S::others % 2 * 2 * S::other_bytes;
  };
  load_keys<S>(pair(begin), at, p, begin);
  Sums<S::blocks, dim> out;
  clear<S::blocks, dim>(out);
  RunningSoftmax<S, limited> softmax;
  const float scale_log2 = limited ? scale_of_scores(p) : p.scale * kLog2OfE;
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
      const int* of_warp = first_keys + (own - first);
      if (first_key + S::others <= of_warp[0]) {
        continue;
      }
      masked = masked || first_key < of_warp[S::warp_rows - 1];
    }
    const int tile = pair(first_key);
    Sums<S::blocks, S::others> scores;
    multiply_rows<S>(scores, rows_first<dim>(0, own - first), columns_first<dim>(tile, 0));
    if constexpr (limited) {
      if (p.softcap != 0.0F) {
        cap_scores<S>(scores, p.scale, p.softcap);
      }
    }
    if (masked) {
      mask_scores<S>(scores, own, first_key, [&](int m, int half) {
        return limited ? first_keys[own - first + m * 16 + half * 8 + Lane().group] : 0;
      });
    }
    softmax.take(scores, out, scale_log2);
    multiply_scores<S, dim>(out, scores, rows_first<dim>(tile + S::other_bytes, 0));
  }
  softmax.finish(out, p.lse + at.first_row(p.heads), own, at.seq_len,
                 limited && p.softcap != 0.0F ? 1.0F : p.scale,
                 limited ? sink_of(p, at.head) : nullptr);
  store_sums<S, dim>(p.out, p.out_layout, at.of(at.head, p.value_dim), out, 0, first, 0);
}

template <int dim, bool limited>
void launch_forward(CudaStream& stream, const AttentionForwardParams& p, bool aligned) {
  using S = ForwardShape<dim, limited>;
  constexpr int row_bytes = limited ? S::rows * static_cast<int>(sizeof(int)) : 0;
  const Grid grid = mma_grid<S>(p.sequences * p.heads, p.seq_len, 1, row_bytes, 1);
  allow_shared_bytes(attention_forward_mma_kernel<dim, limited>, grid.shared_bytes);
  launch(stream, attention_forward_mma_kernel<dim, limited>, grid, p, aligned);
}

}  // namespace

void attention_forward_mma(CudaStream& stream, const AttentionForwardParams& p) {
  const bool aligned = p.head_dim % kChunkColumns == 0 && p.value_dim % kChunkColumns == 0 &&
                       chunks_aligned(p.q, p.q_layout) && chunks_aligned(p.k, p.k_layout) &&
                       chunks_aligned(p.v, p.v_layout) && chunks_aligned(p.out, p.out_layout);
  if (widest_head(p) <= kMostWgmmaColumns && aligned && has_warpgroups()) {
    attention_forward_wgmma(stream, p);
    return;
  }
  for_head_columns(widest_head(p), [&]<int dim>() {
    if (limits_sight(p)) {
      launch_forward<dim, true>(stream, p, aligned);
    } else {
      launch_forward<dim, false>(stream, p, aligned);
    }
  });
}

}  // namespace train::kernels::cuda
