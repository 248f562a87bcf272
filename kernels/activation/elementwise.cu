#include "kernels/activation/elementwise.hpp"

#include "kernels/element.cuh"
#include "kernels/reduce.cuh"

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

template <class T>
struct ScaleEach {
  ScaleParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    const float scale = p.factor == nullptr ? p.scale : p.scale * *p.factor;
    Several<T, n> x(p.x, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      x.value[j] = scale * x.value[j];
    }
    x.store(p.y, i);
  }
};

struct MaskSignEach {
  MaskSignParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    Several<float, n> kept(p.g, i);
    const Several<float, n> others(p.other, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float g = kept.value[j];
      const float other = others.value[j];
      const bool agree = (g > 0.0F && other > 0.0F) || (g < 0.0F && other < 0.0F);
      kept.value[j] = isnan(g) || isnan(other) ? g + other : agree ? g : 0.0F;
    }
    kept.store(p.g, i);
  }
};

struct FillEach {
  FillParams p;
  template <int n>
  __device__ void run(std::int64_t i) const {
    Several<float, n> out;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      out.value[j] = p.value;
    }
    out.store(p.out, i);
  }
};

/// NaN and Inf are the values v with v - v != 0.
struct IsNonfinite {
  __device__ bool operator()(float x) const { return !(x - x == 0.0F); }
};
struct IsNonzero {
  __device__ bool operator()(float x) const { return !(x == 0.0F); }
};

/// Elements to count, and the counter to add to.
struct Counted {
  const void* x;
  std::int64_t count;
  std::int64_t* total;
};

/// Adds the number of values for which Is is true. Integers, so any order gives the same.
template <class Is, class T, int n>
__global__ void __launch_bounds__(kBlockThreads) count_kernel(Counted p) {
  const Is is;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t whole = p.count / n * n;
  unsigned long long count = 0;
  for (std::int64_t i = thread_index() * n; i < whole; i += step * n) {
    const Several<T, n> x(p.x, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      count += is(x.value[j]) ? 1U : 0U;
    }
  }
  for (std::int64_t i = whole + thread_index(); i < p.count; i += step) {
    count += is(load<T>(p.x, i)) ? 1U : 0U;
  }
  count = warp_sum(count);
  if (threadIdx.x % kWarpSize == 0 && count != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(p.total), count);
  }
}

/// Bf16 rounded as on the CPU, NaN included, since it is sent to other ranks.
struct ExactBf16 {
  std::uint16_t bits;
};
__device__ inline void set_value(ExactBf16& element, float value) {
  element.bits = upper_half(value);
}

/// Converts either way: rounds to bf16; to float exactly.
template <class From, class To>
struct ConvertEach {
  const From* in;
  To* out;
  template <int n>
  __device__ void run(std::int64_t i) const {
    const Several<From, n> from(in, i);
    Several<To, n> to;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      to.value[j] = from.value[j];
    }
    to.store(out, i);
  }
};

}  // namespace

void residual_add(CudaStream& stream, const ResidualAddParams& p) {
  launch_typed_several<ResidualAddEach>(stream, p.count, aligned_to_vectors(p.x, p.branch, p.out),
                                        p);
}

void tree_add(CudaStream& stream, const TreeAddParams& p) {
  launch_several<4>(stream, p.count, aligned_to_vectors(p.left, p.right, p.out), TreeAddEach{p});
}

void scale(CudaStream& stream, const ScaleParams& p) {
  launch_typed_several<ScaleEach>(stream, p.count, aligned_to_vectors(p.x, p.y), p);
}

void mask_sign(CudaStream& stream, const MaskSignParams& p) {
  launch_several<4>(stream, p.count, aligned_to_vectors(p.g, p.other), MaskSignEach{p});
}

void fill(CudaStream& stream, const FillParams& p) {
  launch_several<4>(stream, p.count, aligned_to_vectors(p.out), FillEach{p});
}

/// Copies between any two kinds of memory.
void copy(CudaStream& stream, const CopyParams& p) {
  if (p.in != p.out && p.size_bytes > 0) {
    TRAIN_CUDA_CHECK(cudaMemcpyAsync(p.out, p.in, static_cast<std::size_t>(p.size_bytes),
                                     cudaMemcpyDefault, stream.native()));
  }
}

namespace {

template <class Is>
void count_elements(CudaStream& stream, const Counted& p, DType dtype) {
  constexpr std::int64_t per_block = 64 * kBlockThreads;
  TRAIN_CUDA_CHECK(cudaMemsetAsync(p.total, 0, sizeof(std::int64_t), stream.native()));
  const Grid grid{.blocks = blocks_of(p.count, per_block)};
  for_element_type(dtype, [&]<class T>() {
    if (aligned_to_vectors(p.x)) {
      launch(stream, count_kernel<Is, T, kVectorBytes / sizeof(T)>, grid, p);
    } else {
      launch(stream, count_kernel<Is, T, 1>, grid, p);
    }
  });
}

}  // namespace

void count_nonfinite(CudaStream& stream, const CountNonfiniteParams& p) {
  count_elements<IsNonfinite>(stream, {p.x, p.count, p.nonfinite}, p.dtype);
}

void count_nonzero(CudaStream& stream, const CountNonzeroParams& p) {
  count_elements<IsNonzero>(stream, {p.x, p.count, p.nonzero}, DType::f32);
}

void pack_bf16(CudaStream& stream, const PackBf16Params& p) {
  launch_several<8>(stream, p.count, aligned_to_vectors(p.in, p.out),
                    ConvertEach<float, ExactBf16>{p.in, reinterpret_cast<ExactBf16*>(p.out)});
}

void unpack_bf16(CudaStream& stream, const UnpackBf16Params& p) {
  launch_several<8>(stream, p.count, aligned_to_vectors(p.in, p.out),
                    ConvertEach<Bf16, float>{reinterpret_cast<const Bf16*>(p.in), p.out});
}

}  // namespace train::kernels::cuda
