#include "kernels/gemm/product_trial.hpp"

#include <algorithm>

#include "kernels/element.cuh"
#include "kernels/launch.cuh"

namespace train::kernels::cuda {
namespace {

/// Hash in which each bit depends on all of `i` (the finalizer of MurmurHash3, Appleby, public
/// domain).
__device__ std::uint32_t mixed(std::uint32_t i) {
  i ^= i >> 16U;
  i *= 0x85ebca6bU;
  i ^= i >> 13U;
  i *= 0xc2b2ae35U;
  return i ^ i >> 16U;
}

/// 64-bit hash (SplitMix64, Vigna, public domain).
__device__ unsigned long long mixed_wide(unsigned long long i) {
  i = (i ^ i >> 30U) * 0xbf58476d1ce4e5b9ULL;
  i = (i ^ i >> 27U) * 0x94d049bb133111ebULL;
  return i ^ i >> 31U;
}

template <class T>
__device__ void store_random(void* data, std::int64_t at, std::int64_t i) {
  const std::uint32_t bits = mixed(static_cast<std::uint32_t>(i) + 1);
  store<T>(data, at, __uint_as_float((bits & 0x807fffffU) | 0x3f000000U));
}

template <class T>
struct RandomEach {
  void* data;
  __device__ void operator()(std::int64_t i) const { store_random<T>(data, i, i); }
};

/// Offset of element `i`.
__device__ std::int64_t place_of(const TrialMatrix& matrix, std::int64_t i) {
  return i / matrix.cols * matrix.stride + i % matrix.cols;
}

template <class T>
struct RandomElement {
  TrialMatrix matrix;
  __device__ void operator()(std::int64_t i) const {
    store_random<T>(matrix.data, place_of(matrix, i), i);
  }
};

/// Hashes part `part` of all elements: every `parts`-th, so that neighbouring threads read
/// neighbours.
template <class Bits>
struct FoldPart {
  TrialMatrix matrix;
  std::int64_t parts;
  unsigned long long* fold;
  __device__ void operator()(std::int64_t part) const {
    const auto* bits = static_cast<const Bits*>(matrix.data);
    unsigned long long sum = 0;
    for (std::int64_t i = part; i < matrix.rows * matrix.cols; i += parts) {
      sum += mixed_wide(static_cast<unsigned long long>(i + 1) * 0x9e3779b97f4a7c15ULL +
                        bits[place_of(matrix, i)]);
    }
    atomicAdd(fold, sum);  // Whole numbers: any order gives the same.
  }
};

template <class Bits>
void launch_fold(CudaStream& stream, const TrialMatrix& matrix, unsigned long long* fold) {
  constexpr std::int64_t most_parts = 1 << 18;  // Number of threads that a device runs at once.
  const std::int64_t parts = std::min(most_parts, matrix.rows * matrix.cols);
  launch_each(stream, parts, FoldPart<Bits>{matrix, parts, fold});
}

}  // namespace

void fill_with_random(CudaStream& stream, void* data, std::int64_t count, DType dtype) {
  for_element_type(dtype, [&]<class T>() { launch_each(stream, count, RandomEach<T>{data}); });
}

void fill_with_random(CudaStream& stream, const TrialMatrix& matrix) {
  for_element_type(matrix.dtype, [&]<class T>() {
    launch_each(stream, matrix.rows * matrix.cols, RandomElement<T>{matrix});
  });
}

void fold_bits(CudaStream& stream, const TrialMatrix& matrix, unsigned long long* fold) {
  if (matrix.dtype == DType::bf16) {
    launch_fold<std::uint16_t>(stream, matrix, fold);
  } else {
    launch_fold<std::uint32_t>(stream, matrix, fold);
  }
}

}  // namespace train::kernels::cuda
