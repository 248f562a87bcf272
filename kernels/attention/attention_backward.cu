#include "kernels/attention/attention.cuh"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/instructions.cuh"

namespace train::kernels::cuda {
namespace {

constexpr int kRowsPerBlock = kBlockThreads / kWarpSize;

template <int dim>
constexpr int kQuerySharedFloats = 4 * Tile<dim>::size + Tile<dim>::score_size;
template <int dim>
constexpr int kKeySharedFloats = 4 * Tile<dim>::size + 2 * Tile<dim>::score_size;

/// delta = sum over the head of dout * out, the softmax gradient's row term; one warp per row.
__global__ void __launch_bounds__(kBlockThreads) attention_delta_kernel(AttentionBackwardParams p) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (row >= p.sequences * p.heads * p.seq_len) {
    return;  // The whole warp returns.
  }
  const std::int64_t head = row / p.seq_len % p.heads;
  const std::int64_t token = row / p.seq_len / p.heads * p.seq_len + row % p.seq_len;
  const float* dout = static_cast<const float*>(p.dout) + token * p.dout_layout.outer_stride +
                      head * p.dout_layout.inner_stride;
  const float* out = static_cast<const float*>(p.out) + token * p.out_layout.outer_stride +
                     head * p.out_layout.inner_stride;
  float sum = 0.0F;
  for (std::int64_t c = lane; c < p.value_dim; c += kWarpSize) {
    sum = fmaf(dout[c], out[c], sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) {
    p.delta[row] = sum;
  }
}

/// Loads lse and delta of a thread's queries; zeros past the sequence. `at`: a query head.
template <int dim>
struct RowTerms {
  float lse[Tile<dim>::own_rows];
  float delta[Tile<dim>::own_rows];

  __device__ void load(const AttentionBackwardParams& p, const HeadOfBlock& at, int first_query) {
#pragma unroll
    for (int i = 0; i < Tile<dim>::own_rows; ++i) {
      const int row = first_query + thread_row() * Tile<dim>::own_rows + i;
      lse[i] = row < at.seq_len ? p.lse[at.first_row(p.heads) + row] : 0.0F;
      delta[i] = row < at.seq_len ? p.delta[at.first_row(p.heads) + row] : 0.0F;
    }
  }
};

/// Turns scores q k^T into probabilities exp(capped(scale * score) - lse), and gradients dout v^T
/// into p
/// (gradient - delta) times the cap's slope. Zeros where the query does not see the key, or is past
/// the
/// end of the sequence.
template <int dim>
__device__ void softmax_backward(Scores<dim>& scores, Scores<dim>& gradients,
                                 const RowTerms<dim>& terms, const AttentionBackwardParams& p,
                                 const Sight& sight, int first_query, int first_key) {
  using T = Tile<dim>;
  const FirstKeys<dim> first_keys(sight, first_query);
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    const int query = first_query + thread_row() * T::own_rows + i;
#pragma unroll
    for (int j = 0; j < T::own_rows; ++j) {
      const int key = first_key + thread_column() + kTileSide * j;
      const bool seen = key <= query && key >= first_keys.row[i] && query < sight.seq_len &&
                        !sight.hides(key, query, first_keys.row[i]);
      float score = scores[i][j] * p.scale;
      float slope = 1.0F;
      if (p.softcap != 0.0F) {
        const float tanh = tanhf(score / p.softcap);
        score = p.softcap * tanh;
        slope = fmaf(-tanh, tanh, 1.0F);
      }
      const float probability = seen ? expf(score - terms.lse[i]) : 0.0F;
      scores[i][j] = probability;
      const float gradient = probability * (gradients[i][j] - terms.delta[i]);
      gradients[i][j] = seen ? gradient * slope : 0.0F;
    }
  }
}

/// Computes dq of one tile of queries, over all tiles of keys that any of them sees.
template <int dim>
__global__ void __launch_bounds__(kBlockThreads, Tile<dim>::blocks_at_once)
    attention_query_gradient_kernel(AttentionBackwardParams p) {
  using T = Tile<dim>;
  float* q = dynamic_shared<float>();
  float* dout = q + T::size;
  float* k = dout + T::size;
  float* v = k + T::size;
  float* dscores = v + T::size;
  const HeadOfBlock at(p, p.heads);
  const int kv_head = at.head / heads_of_group(p);
  const Sight sight(p, at.sequence);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * T::rows;
  load_tile<dim>(q, at, p.q, p.q_layout, first);
  load_tile<dim>(dout, at.of(at.head, p.value_dim), p.dout, p.dout_layout, first);
  RowTerms<dim> terms;
  terms.load(p, at, first);
  Outputs<dim> dq;
  clear<dim>(dq);
  const int begin = sight.first_key(first) / T::rows * T::rows;
  for (int tile = begin; tile <= first; tile += T::rows) {
    __syncthreads();  // The previous tiles are no longer in use.
    load_tile<dim>(k, at.of(kv_head, p.head_dim), p.k, p.k_layout, tile);
    load_tile<dim>(v, at.of(kv_head, p.value_dim), p.v, p.v_layout, tile);
    __syncthreads();
    Scores<dim> scores;
    Scores<dim> gradients;
    multiply_rows<dim>(scores, q, k);
    multiply_rows<dim>(gradients, dout, v);
    softmax_backward<dim>(scores, gradients, terms, p, sight, first, tile);
    store_scores<dim>(dscores, gradients);
    __syncthreads();
    multiply_scores<dim, false>(dq, dscores, k);
  }
  float factor[T::own_rows];
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    factor[i] = p.scale;
  }
  store_outputs<dim>(p.dq, p.dq_layout, at, dq, factor, first);
}

/// Computes dk and dv of one tile of keys: for each query head of the group in order, over the
/// tiles of queries that see any of the keys.
template <int dim>
__global__ void __launch_bounds__(kBlockThreads, Tile<dim>::blocks_at_once)
    attention_key_gradient_kernel(AttentionBackwardParams p) {
  using T = Tile<dim>;
  float* k = dynamic_shared<float>();
  float* v = k + T::size;
  float* q = v + T::size;
  float* dout = q + T::size;
  float* probabilities = dout + T::size;
  float* dscores = probabilities + T::score_size;
  const HeadOfBlock at(p, p.kv_heads);
  const HeadOfBlock values = at.of(at.head, p.value_dim);
  const Sight sight(p, at.sequence);
  const int first = static_cast<int>(blockIdx.y) * T::rows;
  const int end = sight.end_of_queries(min(first + T::rows, at.seq_len) - 1);
  const int group = heads_of_group(p);
  load_tile<dim>(k, at, p.k, p.k_layout, first);
  load_tile<dim>(v, values, p.v, p.v_layout, first);
  Outputs<dim> dk;
  Outputs<dim> dv;
  clear<dim>(dk);
  clear<dim>(dv);
  for (int head = at.head * group; head < (at.head + 1) * group; ++head) {
    for (int tile = first; tile < end; tile += T::rows) {
      __syncthreads();  // The previous tiles are no longer in use.
      load_tile<dim>(q, at.of(head, p.head_dim), p.q, p.q_layout, tile);
      load_tile<dim>(dout, at.of(head, p.value_dim), p.dout, p.dout_layout, tile);
      RowTerms<dim> terms;
      terms.load(p, at.of(head, p.head_dim), tile);
      __syncthreads();
      Scores<dim> scores;
      Scores<dim> gradients;
      multiply_rows<dim>(scores, q, k);
      multiply_rows<dim>(gradients, dout, v);
      softmax_backward<dim>(scores, gradients, terms, p, sight, tile, first);
      store_scores<dim>(probabilities, scores);
      store_scores<dim>(dscores, gradients);
      __syncthreads();
      multiply_scores<dim, true>(dv, probabilities, dout);
      multiply_scores<dim, true>(dk, dscores, q);
    }
  }
  float factor[T::own_rows];
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    factor[i] = 1.0F;
  }
  store_outputs<dim>(p.dv, p.dv_layout, values, dv, factor, first);
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    factor[i] = p.scale;
  }
  store_outputs<dim>(p.dk, p.dk_layout, at, dk, factor, first);
}

}  // namespace

/// Three passes, each of which overwrites its results: no sums across blocks.
void attention_backward(CudaStream& stream, const AttentionBackwardParams& params) {
  const AttentionBackwardParams p = resolved(params);
  if (p.dtype == DType::bf16) {
    attention_backward_mma(stream, p);
    return;
  }
  const std::int64_t heads = p.sequences * p.heads;
  const Grid rows{.blocks = blocks_of(heads * p.seq_len, kRowsPerBlock)};
  launch(stream, attention_delta_kernel, rows, p);
  for_head_columns(widest_head(p), [&]<int dim>() {
    const Grid queries = attention_grid<dim>(heads, p.seq_len, kQuerySharedFloats<dim>);
    allow_shared_bytes(attention_query_gradient_kernel<dim>, queries.shared_bytes);
    launch(stream, attention_query_gradient_kernel<dim>, queries, p);
    const Grid keys =
        attention_grid<dim>(p.sequences * p.kv_heads, p.seq_len, kKeySharedFloats<dim>);
    allow_shared_bytes(attention_key_gradient_kernel<dim>, keys.shared_bytes);
    launch(stream, attention_key_gradient_kernel<dim>, keys, p);
  });
}

}  // namespace train::kernels::cuda
