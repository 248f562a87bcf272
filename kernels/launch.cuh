#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/device/cuda_device.hpp"
#include "kernels/device/cuda_stream.hpp"
#include "kernels/dtype.hpp"
#include "kernels/kernel_list.hpp"

// How a kernel is launched.
namespace train::kernels::cuda {

constexpr int warp_size = 32;
constexpr unsigned all_lanes = 0xffffffffU;
/// Threads of a block, where nothing speaks for another number.
constexpr int block_threads = 256;

struct Grid {
  dim3 blocks;
  dim3 threads = dim3(block_threads);
  std::size_t shared_bytes = 0;  ///< Dynamic shared memory; above 48 KiB see allow_shared_bytes.
};

/// Launches `kernel`; nothing if the grid is empty. Throws DeviceError.
template <class... Params, class... Args>
void launch(CudaStream& stream, void (*kernel)(Params...), const Grid& grid, Args&&... args) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0) {
    return;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream.native();
  TRAIN_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

/// Lets `kernel` have more dynamic shared memory than 48 KiB.
template <class... Params>
void allow_shared_bytes(void (*kernel)(Params...), std::size_t size_bytes) {
  TRAIN_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(size_bytes)));
}

/// The dynamic and static shared memory that a block of the current device may have at most.
inline std::int64_t most_shared_bytes() {
  int device = 0;
  int size_bytes = 0;
  TRAIN_CUDA_CHECK(cudaGetDevice(&device));
  TRAIN_CUDA_CHECK(
      cudaDeviceGetAttribute(&size_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return size_bytes;
}

/// Blocks for `count` items of `per_block`; grids of one dimension have room for 2^31.
inline dim3 blocks_of(std::int64_t count, std::int64_t per_block) {
  return dim3(static_cast<unsigned>(divide_up(count, per_block)));
}

/// Index of this thread among all of a grid of one dimension.
__device__ inline std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <class Body>
__global__ void __launch_bounds__(block_threads) each_kernel(std::int64_t count, Body body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = thread_index(); i < count; i += step) {
    body(i);
  }
}

/// body(i) for every i of [0, count), each on a thread of its own or one of few that a thread
/// takes.
template <class Body>
void launch_each(CudaStream& stream, std::int64_t count, const Body& body) {
  constexpr std::int64_t most_blocks = 1 << 16;
  const auto blocks = std::min(most_blocks, divide_up(count, block_threads));
  launch(stream, each_kernel<Body>, {.blocks = dim3(static_cast<unsigned>(blocks))}, count, body);
}

/// Leaves for the host what is wrong in the data; of several findings one stays, whole. `kernel` is
/// an address of the host, handed through.
__device__ inline void report_fault(DeviceFault* fault, const char* kernel, std::int32_t value,
                                    std::int64_t position, std::int64_t limit) {
  if (atomicCAS(&fault->found, 0U, 1U) == 0U) {
    fault->value = value;
    fault->position = position;
    fault->limit = limit;
    fault->kernel = kernel;
  }
}

}  // namespace train::kernels::cuda
