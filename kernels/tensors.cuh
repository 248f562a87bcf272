#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/element.cuh"
#include "kernels/launch.cuh"

// One launch over many tensors. A model has hundreds, most too small to fill a device: separate
// launches would take longer than the work.
namespace train::kernels::cuda {

/// Tensors of one launch, passed as a kernel argument, of which every device takes 4 KiB.
template <class Tensor>
struct TensorBatch {
  static constexpr int most = 3584 / static_cast<int>(sizeof(Tensor) + sizeof(std::int32_t));

  std::int32_t count = 0;
  std::int32_t first_block[most] = {};  ///< First block of each tensor; ascending from 0.
  Tensor tensors[most];

  /// Tensor of this block, whose first block becomes `first`.
  [[nodiscard]] __device__ const Tensor& of_block(std::int64_t& first) const {
    const auto block = static_cast<std::int32_t>(blockIdx.x);
    int low = 0;
    for (int high = count; high - low > 1;) {
      const int middle = (low + high) / 2;
      if (first_block[middle] <= block) {
        low = middle;
      } else {
        high = middle;
      }
    }
    first = first_block[low];
    return tensors[low];
  }
};

/// Calls with(batch, blocks) for all tensors that have blocks, as many at a time as fit in a batch
/// and a grid. `blocks_of`: blocks of a tensor.
template <class Tensor, class BlocksOf, class With>
void each_batch(const std::vector<Tensor>& tensors, const BlocksOf& blocks_of, const With& with) {
  constexpr std::int64_t most_blocks = std::numeric_limits<std::int32_t>::max();
  TensorBatch<Tensor> batch;
  std::int64_t blocks = 0;
  const auto flush = [&] {
    if (batch.count > 0) {
      with(batch, dim3(static_cast<unsigned>(blocks)));
    }
    batch.count = 0;
    blocks = 0;
  };
  for (const Tensor& tensor : tensors) {
    const std::int64_t more = blocks_of(tensor);
    if (batch.count == TensorBatch<Tensor>::most || blocks + more > most_blocks) {
      flush();
    }
    if (more > 0) {
      batch.first_block[batch.count] = static_cast<std::int32_t>(blocks);
      batch.tensors[batch.count++] = tensor;
      blocks += more;
    }
  }
  flush();
}

/// Elements of a tensor per block: several for each thread, 16 bytes at a time.
constexpr std::int64_t kTensorBlock = 32 * kBlockThreads;

template <int n, class Body, class Tensor>
__device__ void run_part(const Body& body, const Tensor& tensor, std::int64_t begin,
                         std::int64_t end) {
  const std::int64_t whole = begin + (end - begin) / n * n;
  const auto me = static_cast<std::int64_t>(threadIdx.x);
  for (std::int64_t i = begin + me * n; i < whole; i += kBlockThreads * n) {
    body.template run<n>(tensor, i);
  }
  if constexpr (n > 1) {
    for (std::int64_t i = whole + me; i < end; i += kBlockThreads) {
      body.template run<1>(tensor, i);
    }
  }
}

template <class Body, class Tensor>
__global__ void __launch_bounds__(kBlockThreads)
    tensors_kernel(const __grid_constant__ TensorBatch<Tensor> batch,
                   const __grid_constant__ Body body) {
  std::int64_t first = 0;
  const Tensor& tensor = batch.of_block(first);
  const std::int64_t begin = (blockIdx.x - first) * kTensorBlock;
  const std::int64_t end = min(begin + kTensorBlock, Body::count(tensor));
  if (Body::aligned(tensor)) {
    run_part<4>(body, tensor, begin, end);
  } else {
    run_part<1>(body, tensor, begin, end);
  }
}

/// Calls body.run<n>(tensor, i) for every n elements [i, i + n) of every tensor; one by one where
/// Body::aligned() is false.
template <class Body, class Tensor>
void launch_tensors(CudaStream& stream, const std::vector<Tensor>& tensors, const Body& body) {
  each_batch(
      tensors, [](const Tensor& tensor) { return divide_up(Body::count(tensor), kTensorBlock); },
      [&](const TensorBatch<Tensor>& batch, const dim3& blocks) {
        launch(stream, tensors_kernel<Body, Tensor>, {.blocks = blocks}, batch, body);
      });
}

}  // namespace train::kernels::cuda
