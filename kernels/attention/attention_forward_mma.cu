#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/attention_mma.cuh"

namespace train::kernels::cuda {
namespace {

// Why these tiles: a warp has 32 queries, of which 128 columns are 128 of a lane's 255 registers
// and the scores of 64 keys 64 more. So every key and value that is read from shared memory, which
// is no faster than the tensor cores, serves two products, and 128 queries read memory as seldom as
// four warps allow. On sm_90 two blocks share a multiprocessor (96 of 227 KiB and half of the
// registers each), so that one takes exponentials while the other multiplies; sm_80 has memory for
// one of 128 columns. Heads of 256 columns have registers for 16 queries of a warp, and twice the
// warps.
template <int dim>
struct ForwardShape : MmaShape<dim, 4, 2, 64> {
  static constexpr int blocks_at_once = 2;
};
template <>
struct ForwardShape<256> : MmaShape<256, 8, 1, 32> {
  static constexpr int blocks_at_once = 1;
};

/// The running maxima and sums of a lane's rows: group and group + 8 of each 16. A sum is of the
/// lane's own columns until finish().
template <class Shape>
struct RunningSoftmax {
  float largest[Shape::blocks][2];
  float sum[Shape::blocks][2];

  __device__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < Shape::blocks; ++m) {
      for (int half = 0; half < 2; ++half) {
        largest[m][half] = -INFINITY;
        sum[m][half] = 0.0F;
      }
    }
  }

  /// A tile's scores become exp(scale (score - maximum)); the outputs so far follow the maxima.
  __device__ void take(Sums<Shape::blocks, Shape::others>& scores,
                       Sums<Shape::blocks, Shape::dim>& out, float scale_log2) {
#pragma unroll
    for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        take_row(scores[m], out[m], m, half, scale_log2);
      }
    }
  }

  __device__ void take_row(float (&scores)[Shape::others / 8][4], float (&out)[Shape::dim / 8][4],
                           int m, int half, float scale_log2) {
    float above = largest[m][half];
#pragma unroll
    for (int n = 0; n < Shape::others / 8; ++n) {
      above = fmaxf(above, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
    }
    above = warp_max<4>(above);
    const float shift = above * scale_log2;
    const float keep = power_of_two(fmaf(largest[m][half], scale_log2, -shift));
    largest[m][half] = above;
    float added = 0.0F;
#pragma unroll
    for (int n = 0; n < Shape::others / 8; ++n) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        scores[n][i] = power_of_two(fmaf(scores[n][i], scale_log2, -shift));
        added += scores[n][i];
      }
    }
    sum[m][half] = fmaf(sum[m][half], keep, added);
    // Maxima seldom move once a row has seen many keys: then all that was summed is kept as it is.
    if (__ballot_sync(all_lanes, keep != 1.0F) != 0) {
      scale_row(out, half, keep);
    }
  }

  __device__ static void scale_row(float (&out)[Shape::dim / 8][4], int half, float factor) {
#pragma unroll
    for (int n = 0; n < Shape::dim / 8; ++n) {
      out[n][half * 2] *= factor;
      out[n][half * 2 + 1] *= factor;
    }
  }

  /// Divides the outputs by the sums and writes the log of the sums of rows from `first` on.
  __device__ void finish(Sums<Shape::blocks, Shape::dim>& out, float* lse, int first, int seq_len,
                         float scale) {
    const Lane lane;
#pragma unroll
    for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float total = warp_sum<4>(sum[m][half]);
        const int row = first + m * 16 + half * 8 + lane.group;
        if (lane.pair == 0 && row < seq_len) {
          lse[row] = fmaf(largest[m][half], scale, logf(total));
        }
        scale_row(out[m], half, 1.0F / total);
      }
    }
  }
};

/// Minus infinity where the key comes after the query.
template <class Shape>
__device__ void mask_scores(Sums<Shape::blocks, Shape::others>& scores, int first_query,
                            int first_key) {
  const Lane lane;
#pragma unroll
  for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::others / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = first_query + m * 16 + i / 2 * 8 + lane.group;
        const int key = first_key + n * 8 + lane.pair + i % 2;
        scores[m][n][i] = key <= query ? scores[m][n][i] : -INFINITY;
      }
    }
  }
}

/// One tile of queries against every tile of keys up to its last one; the next tile is on its way
/// to shared memory while one is multiplied.
template <int dim>
__global__ void __launch_bounds__(ForwardShape<dim>::threads, ForwardShape<dim>::blocks_at_once)
    attention_forward_mma_kernel(AttentionForwardParams p, bool aligned) {
  using S = ForwardShape<dim>;
  constexpr int keys = S::own_bytes;  // Where tiles lie in shared memory: queries, then pairs.
  const MmaHead at(p, aligned);
  // The longest rows first, so that the last blocks to finish are short ones.
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * S::rows;
  const int own = first + warp_index() * S::warp_rows;
  const int end = min(first + S::rows, at.seq_len);
  const auto load_keys = [&](int first_key, int slot) {
    const int to = keys + slot * 2 * S::other_bytes;
    load_tile<dim, S::others, S::threads>(to, at, p.k, p.k_layout, first_key);
    load_tile<dim, S::others, S::threads>(to + S::other_bytes, at, p.v, p.v_layout, first_key);
    commit_copies();
  };
  load_tile<dim, S::rows, S::threads>(0, at, p.q, p.q_layout, first);
  load_keys(0, 0);
  Sums<S::blocks, dim> out;
  clear<S::blocks, dim>(out);
  RunningSoftmax<S> softmax;
  const float scale_log2 = p.scale * log2_of_e;
  for (int first_key = 0; first_key < end; first_key += S::others) {
    const int slot = first_key / S::others % 2;
    wait_for_copies<0>();
    __syncthreads();  // This tile is there, and the one before has been used.
    if (first_key + S::others < end) {
      load_keys(first_key + S::others, 1 - slot);
    }
    if (first_key < own + S::warp_rows && own < at.seq_len) {  // A whole warp.
      const int tile = keys + slot * 2 * S::other_bytes;
      Sums<S::blocks, S::others> scores;
      multiply_rows<S>(scores, rows_first<dim>(0, own - first), columns_first<dim>(tile, 0));
      if (first_key + S::others > own + 1) {
        mask_scores<S>(scores, own, first_key);
      }
      softmax.take(scores, out, scale_log2);
      multiply_scores<S, dim>(out, scores, rows_first<dim>(tile + S::other_bytes, 0));
    }
  }
  softmax.finish(out, p.lse + at.first_row(), own, at.seq_len, p.scale);
  store_sums<S, dim>(p.out, p.out_layout, at, out, 0, first, 0);
}

}  // namespace

void attention_forward_mma(CudaStream& stream, const AttentionForwardParams& p) {
  const bool aligned = p.head_dim % chunk_columns == 0 && chunks_aligned(p.q, p.q_layout) &&
                       chunks_aligned(p.k, p.k_layout) && chunks_aligned(p.v, p.v_layout) &&
                       chunks_aligned(p.out, p.out_layout);
  for_head_columns(p.head_dim, [&]<int dim>() {
    const Grid grid = mma_grid<ForwardShape<dim>>(p.sequences * p.heads, p.seq_len, 1, 0, 1);
    allow_shared_bytes(attention_forward_mma_kernel<dim>, grid.shared_bytes);
    launch(stream, attention_forward_mma_kernel<dim>, grid, p, aligned);
  });
}

}  // namespace train::kernels::cuda
