#include "kernels/attention/attention_cached.hpp"
#include "kernels/element.cuh"
#include "kernels/instructions.cuh"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

constexpr int kWarps = kBlockThreads / kWarpSize;

/// Scores of `keys` rows with the query `q`, a warp each: lanes take every kWarpSize-th element.
template <class T>
__device__ void score_keys(const float* q, const T* rows, int keys, int width, float scale,
                           float* scores) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int key = static_cast<int>(threadIdx.x) / kWarpSize; key < keys; key += kWarps) {
    const T* of_key = rows + std::int64_t{key} * width;
    float score = 0.0F;
    for (int c = lane; c < width; c += kWarpSize) {
      score = fmaf(q[c], value_of(of_key[c]), score);
    }
    score = warp_sum(score);
    if (lane == 0) {
      scores[key] = score * scale;
    }
  }
}

/// One block per head and row. Scores: one warp per key, kBlockThreads keys at a time. Outputs: a
/// thread has every kBlockThreads-th column, in shared memory behind the query.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    latent_cached_kernel(LatentCachedParams p, DeviceFault* fault, const char* name) {
  __shared__ float weights[kBlockThreads];
  __shared__ float folded[kBlockThreads];
  const int me = static_cast<int>(threadIdx.x);
  const auto latent = static_cast<int>(p.cache.latent_dim);
  const int width = latent + static_cast<int>(p.cache.rope_dim);
  float* q = dynamic_shared<float>();
  float* sums = q + width;
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(p.heads);
  const std::int64_t head = blockIdx.x % static_cast<unsigned>(p.heads);
  const std::int64_t count = std::int64_t{p.positions[row]} + 1;
  T* out =
      static_cast<T*>(p.out) + row * p.out_layout.outer_stride + head * p.out_layout.inner_stride;
  if (count < 1 || count > p.cache.capacity) {  // All threads return.
    if (me == 0) {
      report_fault(fault, name, p.positions[row], row, p.cache.capacity,
                   DeviceFault::Kind::position);
    }
    for (int c = me; c < latent; c += kBlockThreads) {
      store<T>(out, c, NAN);
    }
    return;
  }
  const T* query =
      static_cast<const T*>(p.q) + row * p.q_layout.outer_stride + head * p.q_layout.inner_stride;
  const T* cached = static_cast<const T*>(p.cache.rows) + p.texts[row] * p.cache.capacity * width;
  for (int c = me; c < width; c += kBlockThreads) {
    q[c] = value_of(query[c]);
  }
  for (int c = me; c < latent; c += kBlockThreads) {
    sums[c] = 0.0F;
  }
  float largest = -INFINITY;
  float sum = 0.0F;
  for (std::int64_t begin = 0; begin < count; begin += kBlockThreads) {
    __syncthreads();  // The query is stored, and the previous weights are no longer in use.
    const auto keys = static_cast<int>(min(count - begin, std::int64_t{kBlockThreads}));
    score_keys(q, cached + begin * width, keys, width, p.scale, weights);
    __syncthreads();
    const float score = me < keys ? weights[me] : -INFINITY;
    folded[me] = score;
    fold_block(folded, kBlockThreads, [](float a, float b) { return fmaxf(a, b); });
    const float above = fmaxf(largest, folded[0]);
    const float keep = expf(largest - above);
    largest = above;
    __syncthreads();  // All threads have read it.
    weights[me] = folded[me] = me < keys ? expf(score - above) : 0.0F;
    fold_block(folded, kBlockThreads, Add());
    sum = fmaf(sum, keep, folded[0]);
    for (int c = me; c < latent; c += kBlockThreads) {
      float result = sums[c] * keep;
      for (int i = 0; i < keys; ++i) {
        result = fmaf(weights[i], value_of(cached[(begin + i) * width + c]), result);
      }
      sums[c] = result;
    }
  }
  for (int c = me; c < latent; c += kBlockThreads) {
    store<T>(out, c, sums[c] / sum);
  }
}

/// Appends element i of the rows: first all latents' elements of a row, then its key's. Reports a
/// row outside the cache, which it leaves out.
template <class T>
struct AppendLatentEach {
  LatentAppendParams p;
  DeviceFault* fault = nullptr;
  const char* name = nullptr;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t width = p.cache.latent_dim + p.cache.rope_dim;
    const std::int64_t row = i / width;
    const std::int64_t column = i - row * width;
    const std::int32_t position = p.positions[row];
    if (position < 0 || position >= p.cache.capacity) {
      if (column == 0) {
        report_fault(fault, name, position, row, p.cache.capacity, DeviceFault::Kind::position);
      }
      return;
    }
    const bool of_key = column >= p.cache.latent_dim;
    const T* from =
        of_key ? static_cast<const T*>(p.key) + row * p.key_layout.outer_stride +
                     (column - p.cache.latent_dim)
               : static_cast<const T*>(p.latent) + row * p.latent_layout.outer_stride + column;
    static_cast<T*>(p.cache.rows)[(p.texts[row] * p.cache.capacity + position) * width + column] =
        *from;
  }
};

}  // namespace

void latent_cached(CudaStream& stream, const LatentCachedParams& p) {
  const std::int64_t floats = 2 * p.cache.latent_dim + p.cache.rope_dim;
  const Grid grid{.blocks = blocks_of(p.rows * p.heads, 1),
                  .shared_bytes = static_cast<std::size_t>(floats) * sizeof(float)};
  for_element_type(p.dtype, [&]<class T>() {
    allow_shared_bytes(latent_cached_kernel<T>, grid.shared_bytes);
    launch(stream, latent_cached_kernel<T>, grid, p, stream.fault(), "latent_cached");
  });
}

void latent_append(CudaStream& stream, const LatentAppendParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    launch_each(stream, p.rows * (p.cache.latent_dim + p.cache.rope_dim),
                AppendLatentEach<T>{p, stream.fault(), "latent_append"});
  });
}

}  // namespace train::kernels::cuda
