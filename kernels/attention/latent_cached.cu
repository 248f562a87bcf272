#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/element.cuh"
#include "kernels/instructions.cuh"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

constexpr int kMostLatentColumns = 4;  ///< Of a thread: latents of up to 1,024 elements.

/// One block per head and row: scores of one key per thread, kBlockThreads keys at a time; outputs
/// of each thread in columns that kBlockThreads lie between.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    latent_cached_kernel(LatentCachedParams p, DeviceFault* fault, const char* name) {
  __shared__ float weights[kBlockThreads];
  __shared__ float folded[kBlockThreads];
  float* const q = dynamic_shared<float>();
  const LatentCache& cache = p.cache;
  const int me = static_cast<int>(threadIdx.x);
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(p.heads);
  const std::int64_t head = blockIdx.x % static_cast<unsigned>(p.heads);
  const std::int64_t width = cache.latent_dim + cache.rope_dim;
  const std::int64_t count = std::int64_t{p.positions[row]} + 1;
  T* const out =
      static_cast<T*>(p.out) + row * p.out_layout.outer_stride + head * p.out_layout.inner_stride;
  if (count < 1 || count > cache.capacity) {  // All threads return.
    if (me == 0) {
      report_fault(fault, name, p.positions[row], row, cache.capacity, DeviceFault::Kind::position);
    }
    for (int c = me; c < cache.latent_dim; c += kBlockThreads) {
      store<T>(out, c, NAN);
    }
    return;
  }
  const T* const rows = static_cast<const T*>(cache.rows) + p.texts[row] * cache.capacity * width;
  const T* const query =
      static_cast<const T*>(p.q) + row * p.q_layout.outer_stride + head * p.q_layout.inner_stride;
  for (int c = me; c < width; c += kBlockThreads) {
    q[c] = value_of(query[c]);
  }
  float largest = -INFINITY;
  float sum = 0.0F;
  float result[kMostLatentColumns] = {};
  for (std::int64_t begin = 0; begin < count; begin += kBlockThreads) {
    __syncthreads();  // The queries are stored, and the previous weights are no longer in use.
    const auto keys = static_cast<int>(min(count - begin, std::int64_t{kBlockThreads}));
    float score = -INFINITY;
    if (me < keys) {
      const T* const key = rows + (begin + me) * width;
      score = 0.0F;
      for (int d = 0; d < width; ++d) {
        score = fmaf(q[d], value_of(key[d]), score);
      }
      score *= p.scale;
    }
    folded[me] = score;
    fold_block(folded, kBlockThreads, [](float a, float b) { return fmaxf(a, b); });
    const float above = fmaxf(largest, folded[0]);
    const float keep = expf(largest - above);
    largest = above;
    __syncthreads();  // All threads have read it.
    weights[me] = folded[me] = me < keys ? expf(score - above) : 0.0F;
    fold_block(folded, kBlockThreads, Add());
    sum = fmaf(sum, keep, folded[0]);
#pragma unroll
    for (int i = 0; i < kMostLatentColumns; ++i) {
      const int column = me + i * kBlockThreads;
      result[i] *= keep;
      for (int key = 0; column < cache.latent_dim && key < keys; ++key) {
        result[i] = fmaf(weights[key], value_of(rows[(begin + key) * width + column]), result[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kMostLatentColumns; ++i) {
    if (const int column = me + i * kBlockThreads; column < cache.latent_dim) {
      store<T>(out, column, result[i] / sum);
    }
  }
}

/// Copies element i of a row's latent and key.
template <class T>
struct AppendLatents {
  LatentAppendParams p;
  DeviceFault* fault;
  const char* name;

  __device__ void operator()(std::int64_t i) const {
    const LatentCache& cache = p.cache;
    const std::int64_t width = cache.latent_dim + cache.rope_dim;
    const std::int64_t row = i / width, column = i % width;
    const std::int32_t position = p.positions[row];
    if (position < 0 || position >= cache.capacity) {
      report_fault(fault, name, position, row, cache.capacity, DeviceFault::Kind::position);
      return;
    }
    const T* const from =
        column < cache.latent_dim
            ? static_cast<const T*>(p.latent) + row * p.latent_layout.outer_stride + column
            : static_cast<const T*>(p.key) + row * p.key_layout.outer_stride + column -
                  cache.latent_dim;
    static_cast<T*>(cache.rows)[(p.texts[row] * cache.capacity + position) * width + column] =
        *from;
  }
};

/// Sum of a head's rows: each thread's own in order, then by halves; sequences rising.
__global__ void __launch_bounds__(kBlockThreads)
    attention_sinks_kernel(AttentionSinksBackwardParams p) {
  __shared__ float folded[kBlockThreads];
  const int me = static_cast<int>(threadIdx.x);
  const std::int64_t head = blockIdx.x;
  float total = 0.0F;
  for (std::int64_t sequence = 0; sequence < p.sequences; ++sequence) {
    const std::int64_t first = (sequence * p.heads + head) * p.seq_len;
    float sum = 0.0F;
    for (std::int64_t row = me; row < p.seq_len; row += kBlockThreads) {
      sum -= expf(p.sinks[head] - p.lse[first + row]) * p.delta[first + row];
    }
    folded[me] = sum;
    fold_block(folded, kBlockThreads, Add());
    total += folded[0];
    __syncthreads();  // All threads have read it.
  }
  if (me == 0) {
    p.dsinks[head] = total;
  }
}

}  // namespace

void latent_cached(CudaStream& stream, const LatentCachedParams& p) {
  if (p.rows == 0) {
    return;
  }
  const auto bytes =
      static_cast<std::size_t>(p.cache.latent_dim + p.cache.rope_dim) * sizeof(float);
  for_element_type(p.dtype, [&]<class T>() {
    launch(stream, latent_cached_kernel<T>,
           {.blocks = blocks_of(p.rows * p.heads, 1), .shared_bytes = bytes}, p, stream.fault(),
           "latent_cached");
  });
}

void latent_append(CudaStream& stream, const LatentAppendParams& p) {
  if (p.rows == 0) {
    return;
  }
  for_element_type(p.dtype, [&]<class T>() {
    launch_each(stream, p.rows * (p.cache.latent_dim + p.cache.rope_dim),
                AppendLatents<T>{p, stream.fault(), "latent_append"});
  });
}

void attention_sinks_backward(CudaStream& stream, const AttentionSinksBackwardParams& p) {
  launch(stream, attention_sinks_kernel, {.blocks = blocks_of(p.heads, 1)}, p);
}

}  // namespace train::kernels::cuda
