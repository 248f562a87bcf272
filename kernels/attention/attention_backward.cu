#include "kernels/attention/attention.cuh"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/instructions.cuh"

namespace train::kernels::cuda {
namespace {

constexpr int rows_per_block = block_threads / warp_size;

template <int dim>
constexpr int query_shared_floats = 4 * Tile<dim>::size + Tile<dim>::score_size;
template <int dim>
constexpr int key_shared_floats = 4 * Tile<dim>::size + 2 * Tile<dim>::score_size;

/// delta = sum over the head of dout * out, the softmax gradient's row term; a warp for each row.
__global__ void __launch_bounds__(block_threads) attention_delta_kernel(AttentionBackwardParams p) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * rows_per_block + threadIdx.x / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  if (row >= p.sequences * p.heads * p.seq_len) {
    return;  // A whole warp leaves.
  }
  const std::int64_t head = row / p.seq_len % p.heads;
  const std::int64_t token = row / p.seq_len / p.heads * p.seq_len + row % p.seq_len;
  const float* dout = static_cast<const float*>(p.dout) + token * p.dout_layout.outer_stride +
                      head * p.dout_layout.inner_stride;
  const float* out = static_cast<const float*>(p.out) + token * p.out_layout.outer_stride +
                     head * p.out_layout.inner_stride;
  float sum = 0.0F;
  for (std::int64_t c = lane; c < p.head_dim; c += warp_size) {
    sum = fmaf(dout[c], out[c], sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) {
    p.delta[row] = sum;
  }
}

/// lse and delta of a thread's queries; zeros past the sequence.
template <int dim>
struct RowTerms {
  float lse[Tile<dim>::own_rows];
  float delta[Tile<dim>::own_rows];

  __device__ void load(const AttentionBackwardParams& p, const HeadOfBlock& at,
                       std::int64_t first_query) {
#pragma unroll
    for (int i = 0; i < Tile<dim>::own_rows; ++i) {
      const std::int64_t row = first_query + thread_row() * Tile<dim>::own_rows + i;
      lse[i] = row < p.seq_len ? p.lse[at.first_row + row] : 0.0F;
      delta[i] = row < p.seq_len ? p.delta[at.first_row + row] : 0.0F;
    }
  }
};

/// scores q k^T -> probabilities exp(scale * score - lse); gradients dout v^T -> p (gradient -
/// delta). Zeros where the key comes after the query, or the query after the sequence.
template <int dim>
__device__ void softmax_backward(Scores<dim>& scores, Scores<dim>& gradients,
                                 const RowTerms<dim>& terms, const AttentionBackwardParams& p,
                                 std::int64_t first_query, std::int64_t first_key) {
  using T = Tile<dim>;
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    const std::int64_t query = first_query + thread_row() * T::own_rows + i;
#pragma unroll
    for (int j = 0; j < T::own_rows; ++j) {
      const std::int64_t key = first_key + thread_column() + tile_side * j;
      const bool seen = key <= query && query < p.seq_len;
      const float probability = seen ? expf(scores[i][j] * p.scale - terms.lse[i]) : 0.0F;
      scores[i][j] = probability;
      gradients[i][j] = seen ? probability * (gradients[i][j] - terms.delta[i]) : 0.0F;
    }
  }
}

/// dq of one tile of queries: the keys' tiles follow each other, up to its last one.
template <int dim>
__global__ void __launch_bounds__(block_threads)
    attention_query_gradient_kernel(AttentionBackwardParams p) {
  using T = Tile<dim>;
  float* q = dynamic_shared<float>();
  float* dout = q + T::size;
  float* k = dout + T::size;
  float* v = k + T::size;
  float* dscores = v + T::size;
  const HeadOfBlock at(p.heads, p.seq_len);
  const std::int64_t first = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * T::rows;
  load_tile<dim>(q, at, p.q, p.q_layout, first, p.head_dim);
  load_tile<dim>(dout, at, p.dout, p.dout_layout, first, p.head_dim);
  RowTerms<dim> terms;
  terms.load(p, at, first);
  Outputs<dim> dq;
  clear<dim>(dq);
  for (std::int64_t first_key = 0; first_key <= first; first_key += T::rows) {
    __syncthreads();  // The tiles before have been used.
    load_tile<dim>(k, at, p.k, p.k_layout, first_key, p.head_dim);
    load_tile<dim>(v, at, p.v, p.v_layout, first_key, p.head_dim);
    __syncthreads();
    Scores<dim> scores;
    Scores<dim> gradients;
    multiply_rows<dim>(scores, q, k);
    multiply_rows<dim>(gradients, dout, v);
    softmax_backward<dim>(scores, gradients, terms, p, first, first_key);
    store_scores<dim>(dscores, gradients);
    __syncthreads();
    multiply_scores<dim, false>(dq, dscores, k);
  }
  float factor[T::own_rows];
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    factor[i] = p.scale;
  }
  store_outputs<dim>(p.dq, p.dq_layout, at, dq, factor, first, p.head_dim);
}

/// dk and dv of one tile of keys: the queries' tiles follow each other, from its own to the last.
template <int dim>
__global__ void __launch_bounds__(block_threads)
    attention_key_gradient_kernel(AttentionBackwardParams p) {
  using T = Tile<dim>;
  float* k = dynamic_shared<float>();
  float* v = k + T::size;
  float* q = v + T::size;
  float* dout = q + T::size;
  float* probabilities = dout + T::size;
  float* dscores = probabilities + T::score_size;
  const HeadOfBlock at(p.heads, p.seq_len);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * T::rows;
  load_tile<dim>(k, at, p.k, p.k_layout, first, p.head_dim);
  load_tile<dim>(v, at, p.v, p.v_layout, first, p.head_dim);
  Outputs<dim> dk;
  Outputs<dim> dv;
  clear<dim>(dk);
  clear<dim>(dv);
  for (std::int64_t first_query = first; first_query < p.seq_len; first_query += T::rows) {
    __syncthreads();  // The tiles before have been used.
    load_tile<dim>(q, at, p.q, p.q_layout, first_query, p.head_dim);
    load_tile<dim>(dout, at, p.dout, p.dout_layout, first_query, p.head_dim);
    RowTerms<dim> terms;
    terms.load(p, at, first_query);
    __syncthreads();
    Scores<dim> scores;
    Scores<dim> gradients;
    multiply_rows<dim>(scores, q, k);
    multiply_rows<dim>(gradients, dout, v);
    softmax_backward<dim>(scores, gradients, terms, p, first_query, first);
    store_scores<dim>(probabilities, scores);
    store_scores<dim>(dscores, gradients);
    __syncthreads();
    multiply_scores<dim, true>(dv, probabilities, dout);
    multiply_scores<dim, true>(dk, dscores, q);
  }
  float factor[T::own_rows];
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    factor[i] = 1.0F;
  }
  store_outputs<dim>(p.dv, p.dv_layout, at, dv, factor, first, p.head_dim);
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    factor[i] = p.scale;
  }
  store_outputs<dim>(p.dk, p.dk_layout, at, dk, factor, first, p.head_dim);
}

}  // namespace

/// Three passes, each of which overwrites what it computes: no sums across blocks.
void attention_backward(CudaStream& stream, const AttentionBackwardParams& p) {
  if (p.group() != 1 || p.window != 0 || p.softcap != 0.0F) {
    throw DeviceError("attention on CUDA has no groups, windows or caps");
  }
  if (p.dtype == DType::bf16) {
    attention_backward_mma(stream, p);
    return;
  }
  const std::int64_t heads = p.sequences * p.heads;
  const Grid rows{.blocks = blocks_of(heads * p.seq_len, rows_per_block)};
  launch(stream, attention_delta_kernel, rows, p);
  for_head_columns(p.head_dim, [&]<int dim>() {
    const Grid queries = attention_grid<dim>(heads, p.seq_len, query_shared_floats<dim>);
    allow_shared_bytes(attention_query_gradient_kernel<dim>, queries.shared_bytes);
    launch(stream, attention_query_gradient_kernel<dim>, queries, p);
    const Grid keys = attention_grid<dim>(heads, p.seq_len, key_shared_floats<dim>);
    allow_shared_bytes(attention_key_gradient_kernel<dim>, keys.shared_bytes);
    launch(stream, attention_key_gradient_kernel<dim>, keys, p);
  });
}

}  // namespace train::kernels::cuda
