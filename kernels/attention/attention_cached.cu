#include "kernels/attention/attention_cached.hpp"

#include <bit>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_heads.cuh"
#include "kernels/element.cuh"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

/// Query head of one row, with its visible keys and values in ascending order.
template <class T>
struct CachedQuery {
  const T* keys;
  const T* values;
  std::int64_t first, count;  ///< Position of the first key, and number of keys.
  std::int64_t capacity;
  std::int64_t hidden, seen;  ///< Keys [hidden, seen) do not count.

  __device__ CachedQuery(const AttentionCachedParams& p, std::int64_t row, std::int64_t head)
      : capacity(p.cache.capacity) {
    const KeyValueCache& cache = p.cache;
    const std::int64_t position = p.positions[row];
    const std::int64_t kv = p.texts[row] * cache.kv_heads + head / (p.heads / cache.kv_heads);
    keys = static_cast<const T*>(cache.keys) + kv * cache.head_dim * capacity;
    values = static_cast<const T*>(cache.values) + kv * capacity * cache.value_dim;
    const std::int64_t window = p.window == 0 ? 0 : max(position + 1 - p.window, std::int64_t{0});
    first = p.prefix == 0 ? window : 0;
    count = position + 1 - first;
    hidden = p.prefix;
    seen = p.prefix == 0 ? 0 : window;
  }
  [[nodiscard]] __device__ std::int64_t slot(std::int64_t i) const {
    return (first + i) % capacity;
  }
  /// Score of the i-th key with the query `q`, scaled and capped.
  [[nodiscard]] __device__ float score(const AttentionCachedParams& p, const float* q,
                                       std::int64_t i) const {
    if (i >= hidden && i < seen) {
      return -INFINITY;
    }
    const T* key = keys + slot(i);
    float score = 0.0F;
    for (int d = 0; d < p.cache.head_dim; ++d) {
      score = fmaf(q[d], value_of(key[d * capacity]), score);
    }
    score *= p.scale;
    return p.softcap == 0.0F ? score : p.softcap * tanhf(score / p.softcap);
  }
};

/// One block per head and row. Scores: one key per thread, kBlockThreads keys at a time. Outputs:
/// one thread per column, or, with few columns, several that each take every n-th key.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    attention_cached_kernel(AttentionCachedParams p, int columns, DeviceFault* fault,
                            const char* name) {
  __shared__ float q[kMaxHeadDim];
  __shared__ float weights[kBlockThreads];
  __shared__ float folded[kBlockThreads];
  const int me = static_cast<int>(threadIdx.x);
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(p.heads);
  const std::int64_t head = blockIdx.x % static_cast<unsigned>(p.heads);
  const CachedQuery<T> of(p, row, head);
  T* out =
      static_cast<T*>(p.out) + row * p.out_layout.outer_stride + head * p.out_layout.inner_stride;
  if (of.count < 1 || of.count > of.capacity) {  // All threads return.
    if (me == 0) {
      report_fault(fault, name, p.positions[row], row, of.capacity, DeviceFault::Kind::position);
    }
    for (int c = me; c < p.cache.value_dim; c += kBlockThreads) {
      store<T>(out, c, NAN);
    }
    return;
  }
  const T* query =
      static_cast<const T*>(p.q) + row * p.q_layout.outer_stride + head * p.q_layout.inner_stride;
  for (int c = me; c < p.cache.head_dim; c += kBlockThreads) {
    q[c] = value_of(query[c]);
  }
  const int column = me % columns;
  const int part = me / columns;
  float largest = -INFINITY;
  float sum = 0.0F;
  float result = 0.0F;
  for (std::int64_t begin = 0; begin < of.count; begin += kBlockThreads) {
    __syncthreads();  // The queries are stored, and the previous weights are no longer in use.
    const auto keys = static_cast<int>(min(of.count - begin, std::int64_t{kBlockThreads}));
    const float score = me < keys ? of.score(p, q, begin + me) : -INFINITY;
    folded[me] = score;
    fold_block(folded, kBlockThreads, [](float a, float b) { return fmaxf(a, b); });
    const float above = fmaxf(largest, folded[0]);
    const float keep = expf(largest - above);
    largest = above;
    __syncthreads();  // All threads have read it.
    weights[me] = folded[me] = me < keys ? expf(score - above) : 0.0F;
    fold_block(folded, kBlockThreads, Add());
    sum = fmaf(sum, keep, folded[0]);
    result *= keep;
    if (column < p.cache.value_dim) {
      for (int i = part; i < keys; i += kBlockThreads / columns) {
        const T* value = of.values + of.slot(begin + i) * p.cache.value_dim;
        result = fmaf(weights[i], value_of(value[column]), result);
      }
    }
  }
  if (p.sinks != nullptr) {
    result *= take_sink(p.sinks[head], &largest, &sum);
  }
  __syncthreads();  // All threads have read the sum.
  folded[me] = result;
  __syncthreads();
  if (part == 0 && column < p.cache.value_dim) {
    for (int i = 1; i < kBlockThreads / columns; ++i) {
      result += folded[i * columns + column];
    }
    store<T>(out, column, result / sum);
  }
}

/// Appends element i of a key or a value, for every head; if rows share a slot, the later one
/// stays.
template <class T, bool of_key>
struct AppendEach {
  KeyValueAppendParams p;

  __device__ void operator()(std::int64_t i) const {
    const KeyValueCache& cache = p.cache;
    const std::int64_t width = of_key ? cache.head_dim : cache.value_dim;
    const std::int64_t head = i / width;
    const std::int64_t column = i - head * width;
    const RowLayout& layout = of_key ? p.k_layout : p.v_layout;
    const T* from = static_cast<const T*>(of_key ? p.k : p.v) + head * layout.inner_stride + column;
    T* to = static_cast<T*>(of_key ? cache.keys : cache.values);
    for (std::int64_t row = 0; row < p.rows; ++row) {
      const std::int64_t kv = p.texts[row] * cache.kv_heads + head;
      const std::int64_t slot = p.positions[row] % cache.capacity;
      to[of_key ? (kv * width + column) * cache.capacity + slot
                : (kv * cache.capacity + slot) * width + column] = from[row * layout.outer_stride];
    }
  }
};

}  // namespace

void attention_cached(CudaStream& stream, const AttentionCachedParams& p) {
  const auto columns = std::max(
      kWarpSize, static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(p.cache.value_dim))));
  for_element_type(p.dtype, [&]<class T>() {
    launch(stream, attention_cached_kernel<T>, {.blocks = blocks_of(p.rows * p.heads, 1)}, p,
           columns, stream.fault(), "attention_cached");
  });
}

void key_value_append(CudaStream& stream, const KeyValueAppendParams& p) {
  if (p.rows == 0) {
    return;
  }
  for_element_type(p.dtype, [&]<class T>() {
    launch_each(stream, p.cache.kv_heads * p.cache.head_dim, AppendEach<T, true>{p});
    launch_each(stream, p.cache.kv_heads * p.cache.value_dim, AppendEach<T, false>{p});
  });
}

}  // namespace train::kernels::cuda
