#include "kernels/attention/attention.cuh"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/instructions.cuh"

namespace train::kernels::cuda {
namespace {

template <int dim>
constexpr int kForwardSharedFloats = 2 * Tile<dim>::size + Tile<dim>::score_size;

/// Adds a tile of scores to a thread's running maxima and sums. Scores become exp(score - maximum);
/// earlier sums must be multiplied by `keep`.
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
    above = fmaxf(largest[i], warp_max<kTileSide>(above));
    // No key seen yet; avoids infinity minus infinity.
    const float shift = above == -INFINITY ? 0.0F : above;
    keep[i] = expf(largest[i] - shift);
    largest[i] = above;
    float added = 0.0F;
#pragma unroll
    for (int j = 0; j < T::own_rows; ++j) {
      scores[i][j] = expf(scores[i][j] - shift);
      added += scores[i][j];
    }
    sum[i] = fmaf(sum[i], keep[i], warp_sum<kTileSide>(added));
  }
}

/// Scales and caps scores; -infinity where the query does not see the key.
template <int dim>
__device__ void mask_scores(Scores<dim>& scores, const AttentionForwardParams& p, int first_query,
                            int tile, const Sight& sight) {
  using T = Tile<dim>;
  const FirstKeys<dim> first_keys(sight, first_query);
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    const int query = first_query + thread_row() * T::own_rows + i;
#pragma unroll
    for (int j = 0; j < T::own_rows; ++j) {
      const int key = tile + thread_column() + kTileSide * j;
      const bool seen =
          key <= query && key >= first_keys.row[i] && !sight.hides(key, query, first_keys.row[i]);
      float score = scores[i][j] * p.scale;
      if (p.softcap != 0.0F) {
        score = p.softcap * tanhf(score / p.softcap);
      }
      scores[i][j] = seen ? score : -INFINITY;
    }
  }
}

/// Computes one tile of queries over all tiles of keys that any of them sees.
template <int dim>
__global__ void __launch_bounds__(kBlockThreads)
    attention_forward_kernel(AttentionForwardParams p) {
  using T = Tile<dim>;
  float* q = dynamic_shared<float>();
  float* kv = q + T::size;  // Keys first, then values.
  float* probabilities = kv + T::size;
  const HeadOfBlock at(p, p.heads);
  const int kv_head = at.head / heads_of_group(p);
  const Sight sight(p, at.sequence);
  // Longest rows first, so that the last blocks to finish are short.
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * T::rows;
  load_tile<dim>(q, at, p.q, p.q_layout, first);
  float largest[T::own_rows];
  float sum[T::own_rows];
  Outputs<dim> out;
  clear<dim>(out);
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    largest[i] = -INFINITY;
    sum[i] = 0.0F;
  }
  const int begin = sight.first_key(first) / T::rows * T::rows;
  for (int tile = begin; tile <= first; tile += T::rows) {
    __syncthreads();  // The previous tile's values are no longer in use.
    load_tile<dim>(kv, at.of(kv_head, p.head_dim), p.k, p.k_layout, tile);
    __syncthreads();
    Scores<dim> scores;
    multiply_rows<dim>(scores, q, kv);
    mask_scores<dim>(scores, p, first, tile, sight);
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
    __syncthreads();  // The keys are no longer in use.
    load_tile<dim>(kv, at.of(kv_head, p.value_dim), p.v, p.v_layout, tile);
    __syncthreads();
    multiply_scores<dim, false>(out, probabilities, kv);
  }
#pragma unroll
  for (int i = 0; i < T::own_rows; ++i) {
    const int row = first + thread_row() * T::own_rows + i;
    float keep = 1.0F;
    if (p.sinks != nullptr) {
      keep = take_sink(p.sinks[at.head], &largest[i], &sum[i]);
    }
    if (thread_column() == 0 && row < at.seq_len) {
      p.lse[at.first_row(p.heads) + row] =
          static_cast<float>(static_cast<double>(largest[i]) + log(static_cast<double>(sum[i])));
    }
    sum[i] = keep / sum[i];
  }
  store_outputs<dim>(p.out, p.out_layout, at.of(at.head, p.value_dim), out, sum, first);
}

/// Reports invalid positions: a document's must count up from 0.
struct CheckPositionsEach {
  const std::int32_t* positions;
  std::int64_t seq_len;
  DeviceFault* fault;
  const char* name;

  __device__ void operator()(std::int64_t token) const {
    const std::int32_t position = positions[token];
    const bool begins = position == 0;
    const bool follows = token % seq_len != 0 && position == positions[token - 1] + 1;
    if (!begins && !follows) {
      report_fault(fault, name, position, token, seq_len, DeviceFault::Kind::document);
    }
  }
};

}  // namespace

void attention_forward(CudaStream& stream, const AttentionForwardParams& params) {
  const AttentionForwardParams p = resolved(params);
  if (p.positions != nullptr) {
    launch_each(stream, p.sequences * p.seq_len,
                CheckPositionsEach{p.positions, p.seq_len, stream.fault(), "attention_forward"});
  }
  if (p.dtype == DType::bf16) {
    attention_forward_mma(stream, p);
    return;
  }
  for_head_columns(widest_head(p), [&]<int dim>() {
    const Grid grid =
        attention_grid<dim>(p.sequences * p.heads, p.seq_len, kForwardSharedFloats<dim>);
    allow_shared_bytes(attention_forward_kernel<dim>, grid.shared_bytes);
    launch(stream, attention_forward_kernel<dim>, grid, p);
  });
}

}  // namespace train::kernels::cuda
