#include "kernels/embedding/token_order.cuh"
#include "kernels/experts/experts.hpp"
#include "kernels/packed.cuh"
#include "kernels/reduce.cuh"
#include "kernels/rows.cuh"

// Rows on their way to the experts and back. Memory limits all of them: a gathered row is read and
// written once, a combined one reads its slots' rows and writes one, the backward pass reads two
// rows of a place twice (the second time from the cache) and writes both. Sorting takes three
// launches of a few microseconds up to 511 experts, five above.
namespace train::kernels::cuda {
namespace {

constexpr int kPlaceWarps = kBlockThreads / kWarpSize;

/// Writes what the sorted choices say of each place, and the offsets of all experts whose first
/// place, or that of the next expert with any, this one is.
struct SortedPlaces {
  ExpertSortParams p;
  const TokenAt* ordered;

  __device__ void operator()(std::int64_t place) const {
    const TokenAt item = ordered[place];
    p.row_of[place] = item.position / static_cast<std::int32_t>(p.slots);
    p.slot_of[place] = item.position;
    p.places[item.position] = static_cast<std::int32_t>(place);
    const std::int32_t before = place == 0 ? -1 : ordered[place - 1].token;
    for (std::int32_t expert = before + 1; expert <= item.token; ++expert) {
      p.offsets[expert] = static_cast<std::int32_t>(place);
    }
    if (place + 1 == p.rows * p.slots) {
      for (std::int64_t expert = item.token + 1; expert <= p.experts; ++expert) {
        p.offsets[expert] = static_cast<std::int32_t>(place + 1);
      }
    }
  }
};

template <class T>
struct GatheredRows {
  GatherRowsParams p;

  template <int n>
  __device__ void run(std::int64_t place, std::int64_t column) const {
    struct alignas(n == 1 ? alignof(T) : kVectorBytes) Stored {
      T element[n];
    };
    const std::int64_t from = p.index[place] * p.cols + column;
    const std::int64_t to = place * p.cols + column;
    *reinterpret_cast<Stored*>(static_cast<T*>(p.y) + to) =
        *reinterpret_cast<const Stored*>(static_cast<const T*>(p.x) + from);
  }
};

template <class T>
struct CombinedRows {
  CombineRowsParams p;

  template <int n>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    Several<float, n> sum = zeros<n>();
    for (std::int64_t i = row * p.slots; i < (row + 1) * p.slots; ++i) {
      const Several<T, n> part(p.parts, p.places[i] * p.cols + column);
      const float weight = p.weights == nullptr ? 1.0F : p.weights[i];
#pragma unroll
      for (int j = 0; j < n; ++j) {
        sum.value[j] = fmaf(weight, part.value[j], sum.value[j]);
      }
    }
    const std::int64_t at = row * p.cols + column;
    Several<T, n> y;
    if (p.accumulate) {
      y = Several<T, n>(p.y, at);
    }
#pragma unroll
    for (int j = 0; j < n; ++j) {
      y.value[j] = p.accumulate ? y.value[j] + sum.value[j] : sum.value[j];
    }
    y.store(p.y, at);
  }
};

/// A warp has a place. Lane l adds the products of every 32nd Packed from the l-th on, in order,
/// then the lanes' sums are added as a tree: the order depends on `cols` and the element type.
template <class T, bool aligned>
__global__ void __launch_bounds__(kBlockThreads)
    slot_weights_backward_kernel(SlotWeightsBackwardParams p) {
  constexpr int n = Packed<T>::count;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t place =
      static_cast<std::int64_t>(blockIdx.x) * kPlaceWarps + threadIdx.x / kWarpSize;
  if (place >= p.count) {
    return;
  }
  T* dh = static_cast<T*>(p.dh) + place * p.cols;
  T* h = static_cast<T*>(p.h) + place * p.cols;
  const std::int32_t slot = p.slot_of[place];
  const float weight = p.weights[slot];
  float sum = 0.0F;
  for (std::int64_t first = lane * n; first < p.cols; first += kWarpSize * n) {
    const int inside = static_cast<int>(min(static_cast<std::int64_t>(n), p.cols - first));
    Packed<T> left, right;
    left.template load<aligned>(dh + first, inside);
    right.template load<aligned>(h + first, inside);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      sum = fmaf(left.value(i), right.value(i), sum);
    }
#pragma unroll
    for (int i = 0; i < n; i += 2) {
      left.set_pair(i, left.value(i) * weight, left.value(i + 1) * weight);
      right.set_pair(i, right.value(i) * weight, right.value(i + 1) * weight);
    }
    left.template store<aligned>(dh + first, inside);
    right.template store<aligned>(h + first, inside);
  }
  sum = warp_sum(sum);
  if (lane == 0) {
    p.dweights[slot] = sum;
  }
}

}  // namespace

void expert_sort(CudaStream& stream, const ExpertSortParams& p) {
  const std::int64_t count = p.rows * p.slots;
  if (count == 0) {
    TRAIN_CUDA_CHECK(cudaMemsetAsync(p.offsets, 0,
                                     static_cast<std::size_t>(p.experts + 1) * sizeof(std::int32_t),
                                     stream.native()));
    return;
  }
  const TokenAt* ordered =
      order_tokens(stream, p.chosen, count, p.experts, {"expert_sort", DeviceFault::Kind::token});
  launch_each(stream, count, SortedPlaces{p, ordered});
}

void gather_rows(CudaStream& stream, const GatherRowsParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    launch_rows<kVectorBytes / sizeof(T)>(stream, p.count, p.cols, aligned_to_vectors(p.x, p.y),
                                          GatheredRows<T>{p});
  });
}

void combine_rows(CudaStream& stream, const CombineRowsParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    launch_rows<kVectorBytes / sizeof(T)>(stream, p.rows, p.cols, aligned_to_vectors(p.parts, p.y),
                                          CombinedRows<T>{p});
  });
}

void slot_weights_backward(CudaStream& stream, const SlotWeightsBackwardParams& p) {
  const Grid grid{.blocks = blocks_of(p.count, kPlaceWarps)};
  for_element_type(p.dtype, [&]<class T>() {
    if (aligned_to_vectors(p.dh, p.h) && whole_strides<T>(p.cols)) {
      launch(stream, slot_weights_backward_kernel<T, true>, grid, p);
    } else {
      launch(stream, slot_weights_backward_kernel<T, false>, grid, p);
    }
  });
}

}  // namespace train::kernels::cuda
