#include "kernels/attention/attention.cuh"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/instructions.cuh"

namespace train::kernels::cuda {
namespace {

template <int dim>
constexpr int forward_shared_floats = 2 * Tile<dim>::size + Tile<dim>::score_size;

/// Takes a tile of scores into a thread's running maxima and sums; the scores become exp(score -
/// maximum), and what was summed up before is to be multiplied by `keep`.
template <int dim>
__device__ void take_scores(Scores<dim>& scores, float* largest, float* sum, float* keep) {
  using T = Tile<dim>;
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    float above = scores[i][0];
#pragma unroll
    for (int j = 1; j < T::own_rows; ++j) {
      above = fmaxf(above, scores[i][j]);
    }
    above = fmaxf(largest[i], warp_max<tile_side>(above));
    keep[i] = expf(largest[i] - above);
    largest[i] = above;
    float added = 0.0F;
#pragma unroll
    for (int j = 0; j < T::own_rows; ++j) {
      scores[i][j] = expf(scores[i][j] - above);
      added += scores[i][j];
    }
    sum[i] = fmaf(sum[i], keep[i], warp_sum<tile_side>(added));
  }
}

/// Scaled scores; minus infinity where the key comes after the query.
template <int dim>
__device__ void mask_scores(Scores<dim>& scores, float scale, std::int64_t first_query,
                            std::int64_t first_key) {
  using T = Tile<dim>;
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    const std::int64_t query = first_query + thread_row() * T::own_rows + i;
#pragma unroll
    for (int j = 0; j < T::own_rows; ++j) {
      const std::int64_t key = first_key + thread_column() + tile_side * j;
      scores[i][j] = key <= query ? scores[i][j] * scale : -INFINITY;
    }
  }
}

/// One tile of queries against every tile of keys up to its last one.
template <int dim>
__global__ void __launch_bounds__(block_threads)
    attention_forward_kernel(AttentionForwardParams p) {
  using T = Tile<dim>;
  float* q = dynamic_shared<float>();
  float* kv = q + T::size;  // Keys, then values.
  float* probabilities = kv + T::size;
  const HeadOfBlock at(p.heads, p.seq_len);
  // The longest rows first, so that the last blocks to finish are short ones.
  const std::int64_t first = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * T::rows;
  load_tile<dim>(q, at, p.q, p.q_layout, first, p.head_dim);
  float largest[T::own_rows];
  float sum[T::own_rows];
  Outputs<dim> out;
  clear<dim>(out);
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    largest[i] = -INFINITY;
    sum[i] = 0.0F;
  }
  for (std::int64_t first_key = 0; first_key <= first; first_key += T::rows) {
    __syncthreads();  // The values of the tile before have been used.
    load_tile<dim>(kv, at, p.k, p.k_layout, first_key, p.head_dim);
    __syncthreads();
    Scores<dim> scores;
    multiply_rows<dim>(scores, q, kv);
    mask_scores<dim>(scores, p.scale, first, first_key);
    float keep[T::own_rows];
    take_scores<dim>(scores, largest, sum, keep);
#pragma unroll
    for (int i = 0; i < T::own_rows; ++i) {
#pragma unroll
      for (int j = 0; j < T::own_columns; ++j) {
        out[i][j] *= keep[i];
      }
    }
    store_scores<dim>(probabilities, scores);
    __syncthreads();  // The keys have been used.
    load_tile<dim>(kv, at, p.v, p.v_layout, first_key, p.head_dim);
    __syncthreads();
    multiply_scores<dim, false>(out, probabilities, kv);
  }
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    const std::int64_t row = first + thread_row() * T::own_rows + i;
    if (thread_column() == 0 && row < p.seq_len) {
      p.lse[at.first_row + row] =
          static_cast<float>(static_cast<double>(largest[i]) + log(static_cast<double>(sum[i])));
    }
    sum[i] = 1.0F / sum[i];
  }
  store_outputs<dim>(p.out, p.out_layout, at, out, sum, first, p.head_dim);
}

}  // namespace

void attention_forward(CudaStream& stream, const AttentionForwardParams& p) {
  if (p.group() != 1 || p.window != 0 || p.softcap != 0.0F) {
    throw DeviceError("attention on CUDA has no groups, windows or caps");
  }
  if (p.dtype == DType::bf16) {
    attention_forward_mma(stream, p);
    return;
  }
  for_head_columns(p.head_dim, [&]<int dim>() {
    const Grid grid =
        attention_grid<dim>(p.sequences * p.heads, p.seq_len, forward_shared_floats<dim>);
    allow_shared_bytes(attention_forward_kernel<dim>, grid.shared_bytes);
    launch(stream, attention_forward_kernel<dim>, grid, p);
  });
}

}  // namespace train::kernels::cuda
