#include "kernels/activation/bias.hpp"
#include "kernels/experts/experts.hpp"
#include "kernels/rows.cuh"

// Biases of experts. A thread has neighbouring columns of a place, or of a block of places, and
// finds the expert by halving the offsets: nine reads for 384 experts, from the cache. The blocks
// of places are numbered as the tiles of products are (expert_tiles.cuh): the host knows only how
// many there can be. Memory limits both.
namespace train::kernels::cuda {
namespace {

constexpr std::int64_t kPlacesOfBlock = BiasGradientParams::kBlock;

/// Number of the first block of an expert: enough for the blocks of those before it.
__device__ std::int64_t first_block(const std::int32_t* offsets, std::int64_t expert) {
  return (offsets[expert] - offsets[0]) / kPlacesOfBlock + expert;
}

/// The last of `experts` experts whose first(expert) is not above `wanted`, at least 0.
template <class First>
__device__ std::int64_t last_begun(std::int64_t experts, std::int64_t wanted, const First& first) {
  std::int64_t low = 0;
  std::int64_t count = experts;
  while (count > 1) {
    const std::int64_t half = count / 2;
    const bool begun = first(low + half) <= wanted;
    low += begun ? half : 0;
    count = begun ? count - half : half;
  }
  return low;
}

template <class T>
struct ExpertBiasRows {
  ExpertBiasForwardParams p;

  template <int n>
  __device__ void run(std::int64_t place, std::int64_t column) const {
    if (place < p.offsets[0] || place >= p.offsets[p.experts]) {
      return;
    }
    const std::int64_t expert =
        last_begun(p.experts, place, [&](std::int64_t e) { return p.offsets[e]; });
    const std::int64_t at = place * p.y_stride + column;
    Several<T, n> y(p.y, at);
    const Several<T, n> bias(p.bias, expert * p.stride + column);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      y.value[j] += bias.value[j];
    }
    y.store(p.y, at);
  }
};

/// Sums a block of an expert's places, in order. A block that no expert uses is not written.
template <class T>
struct PlaceBlockSums {
  ExpertBiasBackwardParams p;
  float* sums;

  template <int n>
  __device__ void run(std::int64_t block, std::int64_t column) const {
    const std::int64_t expert =
        last_begun(p.experts, block, [&](std::int64_t e) { return first_block(p.offsets, e); });
    const std::int64_t first =
        p.offsets[expert] + (block - first_block(p.offsets, expert)) * kPlacesOfBlock;
    const std::int64_t end =
        min(first + kPlacesOfBlock, static_cast<std::int64_t>(p.offsets[expert + 1]));
    if (first >= end) {
      return;
    }
    Several<float, n> sum = zeros<n>();
#pragma unroll 4
    for (std::int64_t place = first; place < end; ++place) {
      const Several<T, n> dy(p.dy, place * p.dy_stride + column);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        sum.value[j] += dy.value[j];
      }
    }
    sum.store(sums, block * p.cols + column);
  }
};

/// Adds the sums of an expert's blocks, in order.
struct ExpertBlocksSum {
  ExpertBiasBackwardParams p;
  const float* sums;

  template <int n>
  __device__ void run(std::int64_t expert, std::int64_t column) const {
    const std::int64_t places = p.offsets[expert + 1] - p.offsets[expert];
    const std::int64_t first = first_block(p.offsets, expert);
    const std::int64_t end = first + (places + kPlacesOfBlock - 1) / kPlacesOfBlock;
    Several<float, n> total = zeros<n>();
#pragma unroll 8
    for (std::int64_t block = first; block < end; ++block) {
      const Several<float, n> sum(sums, block * p.cols + column);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        total.value[j] += sum.value[j];
      }
    }
    total.store(p.dbias, expert * p.stride + column);
  }
};

}  // namespace

void expert_bias_forward(CudaStream& stream, const ExpertBiasForwardParams& p) {
  if (p.experts == 0) {
    return;
  }
  for_element_type(p.dtype, [&]<class T>() {
    const bool aligned = aligned_to_vectors(p.y, p.bias) && whole_strides<T>(p.y_stride, p.stride);
    launch_rows<kVectorBytes / sizeof(T)>(stream, p.places, p.cols, aligned, ExpertBiasRows<T>{p});
  });
}

void expert_bias_backward(CudaStream& stream, const ExpertBiasBackwardParams& p) {
  if (p.experts == 0 || p.cols == 0) {
    return;
  }
  const std::int64_t blocks = p.places == 0 ? 0 : p.places / kPlacesOfBlock + p.experts;
  float* sums = p.dbias;  // Without places there are no sums.
  if (blocks > 0) {
    sums = static_cast<float*>(
        stream.scratch(static_cast<std::size_t>(blocks * p.cols) * sizeof(float)));
  }
  for_element_type(p.dtype, [&]<class T>() {
    const bool aligned = aligned_to_vectors(p.dy, sums) && whole_strides<T>(p.dy_stride);
    launch_rows<kVectorBytes / sizeof(T)>(stream, blocks, p.cols, aligned,
                                          PlaceBlockSums<T>{p, sums});
  });
  // One column per thread: four columns per thread would leave too few threads.
  launch_rows<1>(stream, p.experts, p.cols, false, ExpertBlocksSum{p, sums});
}

}  // namespace train::kernels::cuda
