#include "kernels/elementwise.hpp"

#include "kernels/element.cuh"
#include "kernels/reduce.cuh"
#include "kernels/several.cuh"

namespace train::kernels::cuda {
namespace {

template <class T>
struct ResidualAddEach {
  ResidualAddParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    const Several<T, n> branch(p.branch, i);
    Several<T, n> x(p.x, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      x.value[j] = fmaf(p.scale, branch.value[j], x.value[j]);
    }
    x.store(p.out, i);
  }
};

struct TreeAddEach {
  TreeAddParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    Several<float, n> sum(p.left, i);
    const Several<float, n> right(p.right, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      sum.value[j] = sum.value[j] + right.value[j];
    }
    sum.store(p.out, i);
  }
};

struct ScaleAddEach {
  ScaleAddParams p;
  __device__ void operator()(std::int64_t i) const {
    const float scaled = p.alpha * p.y[i];
    p.y[i] = p.beta == 0.0F ? scaled : fmaf(p.beta, p.x[i], scaled);
  }
};

struct MaskSignEach {
  MaskSignParams p;
  __device__ void operator()(std::int64_t i) const {
    const float g = p.g[i];
    const float other = p.other[i];
    const bool agree = (g > 0.0F && other > 0.0F) || (g < 0.0F && other < 0.0F);
    p.g[i] = isnan(g) || isnan(other) ? g + other : agree ? g : 0.0F;
  }
};

struct FillEach {
  FillParams p;
  __device__ void operator()(std::int64_t i) const { p.out[i] = p.value; }
};

/// Adds the number of values v with v - v != 0 to *p.nonfinite. Integers: any order gives the same.
template <class T>
__global__ void __launch_bounds__(block_threads) count_nonfinite_kernel(CountNonfiniteParams p) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  unsigned long long count = 0;
  for (std::int64_t i = thread_index(); i < p.count; i += step) {
    const float x = load<T>(p.x, i);
    count += x - x == 0.0F ? 0U : 1U;
  }
  count = warp_sum(count);
  if (threadIdx.x % warp_size == 0 && count != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(p.nonfinite), count);
  }
}

}  // namespace

void residual_add(Stream& stream, const ResidualAddParams& params) {
  submit(stream, params, [](CudaStream& native, const ResidualAddParams& p) {
    launch_typed_several<ResidualAddEach>(native, p.count, aligned_to_vectors(p.x, p.branch, p.out),
                                          p);
  });
}

void tree_add(Stream& stream, const TreeAddParams& params) {
  submit(stream, params, [](CudaStream& native, const TreeAddParams& p) {
    launch_several<4>(native, p.count, aligned_to_vectors(p.left, p.right, p.out), TreeAddEach{p});
  });
}

void scale_add(Stream& stream, const ScaleAddParams& params) {
  submit(stream, params, [](CudaStream& native, const ScaleAddParams& p) {
    launch_each(native, p.count, ScaleAddEach{p});
  });
}

void mask_sign(Stream& stream, const MaskSignParams& params) {
  submit(stream, params, [](CudaStream& native, const MaskSignParams& p) {
    launch_each(native, p.count, MaskSignEach{p});
  });
}

void fill(Stream& stream, const FillParams& params) {
  submit(stream, params, [](CudaStream& native, const FillParams& p) {
    launch_each(native, p.count, FillEach{p});
  });
}

/// Between any two kinds of memory.
void copy(Stream& stream, const CopyParams& params) {
  submit(stream, params, [](CudaStream& native, const CopyParams& p) {
    if (p.in != p.out && p.size_bytes > 0) {
      TRAIN_CUDA_CHECK(cudaMemcpyAsync(p.out, p.in, static_cast<std::size_t>(p.size_bytes),
                                       cudaMemcpyDefault, native.native()));
    }
  });
}

void count_nonfinite(Stream& stream, const CountNonfiniteParams& params) {
  submit(stream, params, [](CudaStream& native, const CountNonfiniteParams& p) {
    constexpr std::int64_t per_block = 16 * block_threads;
    TRAIN_CUDA_CHECK(cudaMemsetAsync(p.nonfinite, 0, sizeof(std::int64_t), native.native()));
    for_element_type(p.dtype, [&]<class T>() {
      launch(native, count_nonfinite_kernel<T>, {.blocks = blocks_of(p.count, per_block)}, p);
    });
  });
}

}  // namespace train::kernels::cuda
