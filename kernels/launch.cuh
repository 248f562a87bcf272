#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/device/cuda_device.hpp"
#include "kernels/device/cuda_stream.hpp"
#include "kernels/dtype.hpp"

// Launching of kernels.
namespace train::kernels::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xffffffffU;
/// Default number of threads per block.
constexpr int kBlockThreads = 256;

struct Grid {
  dim3 blocks;
  dim3 threads = dim3(kBlockThreads);
  std::size_t shared_bytes = 0;  ///< Dynamic shared memory; above 48 KiB see allow_shared_bytes.
};

/// Launches `kernel`, unless the grid is empty. Throws DeviceError.
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

/// Allows `kernel` more than 48 KiB of dynamic shared memory. A limit is never lowered, as streams
/// of other threads launch it too.
template <class... Params>
void allow_shared_bytes(void (*kernel)(Params...), std::size_t size_bytes) {
  raise_shared_limit(reinterpret_cast<const void*>(kernel), size_bytes);
}

/// Largest dynamic and static shared memory of a block on the current device.
inline std::int64_t most_shared_bytes() {
  int device = 0;
  int size_bytes = 0;
  TRAIN_CUDA_CHECK(cudaGetDevice(&device));
  TRAIN_CUDA_CHECK(
      cudaDeviceGetAttribute(&size_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return size_bytes;
}

/// Number of multiprocessors of the current device.
inline int multiprocessors() {
  int device = 0;
  int count = 0;
  TRAIN_CUDA_CHECK(cudaGetDevice(&device));
  TRAIN_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

/// True if the current device has warpgroup products (wgmma.cuh): compute capability 9.0 only, for
/// which kernels are compiled with them.
inline bool has_warpgroups() {
  int device = 0;
  int major = 0;
  TRAIN_CUDA_CHECK(cudaGetDevice(&device));
  TRAIN_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major == 9;
}

/// Blocks for `count` items of `per_block`; one-dimensional grids have room for 2^31.
inline dim3 blocks_of(std::int64_t count, std::int64_t per_block) {
  return dim3(static_cast<unsigned>(divide_up(count, per_block)));
}

/// Index of this thread in a one-dimensional grid.
__device__ inline std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <class Body>
__global__ void __launch_bounds__(kBlockThreads) each_kernel(std::int64_t count, Body body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = thread_index(); i < count; i += step) {
    body(i);
  }
}

/// Calls body(i) for every i of [0, count), one or a few per thread.
template <class Body>
void launch_each(CudaStream& stream, std::int64_t count, const Body& body) {
  constexpr std::int64_t most_blocks = 1 << 16;
  const auto blocks = std::min(most_blocks, divide_up(count, kBlockThreads));
  launch(stream, each_kernel<Body>, {.blocks = dim3(static_cast<unsigned>(blocks))}, count, body);
}

/// Calls with<Index>() for the index type for `count`: a 32-bit division takes a fifth of the
/// instructions of a 64-bit one.
template <class With>
void for_index_type(std::int64_t count, const With& with) {
  if (count <= std::numeric_limits<std::int32_t>::max()) {
    with.template operator()<std::uint32_t>();
  } else {
    with.template operator()<std::int64_t>();
  }
}

/// Reports invalid data to the host; of several findings one stays, complete: its fields are
/// written before its flag. `kernel` is a host address, passed through.
__device__ inline void report_fault(DeviceFault* fault, const char* kernel, std::int32_t value,
                                    std::int64_t position, std::int64_t limit,
                                    DeviceFault::Kind kind = DeviceFault::Kind::token) {
  if (atomicCAS(&fault->claimed, 0U, 1U) == 0U) {
    fault->kind = kind;
    fault->value = value;
    fault->position = position;
    fault->limit = limit;
    fault->kernel = kernel;
    __threadfence_system();
    *static_cast<volatile std::uint32_t*>(&fault->found) = 1;
  }
}

/// Row of a table for each row of a tensor: given by an index array, or in order.
struct TableRows {
  const std::int32_t* positions = nullptr;
  std::int64_t count = 1;  ///< Rows of the table.
  DeviceFault* fault = nullptr;
  const char* kernel = nullptr;

  /// Table row of `row`; -1 (and a report) if the given index is outside the table.
  template <class Index>
  [[nodiscard]] __device__ std::int64_t of(Index row) const {
    if (positions == nullptr) {
      return static_cast<std::int64_t>(row % static_cast<Index>(count));
    }
    const std::int32_t position = positions[row];
    if (position < 0 || position >= count) {
      report_fault(fault, kernel, position, static_cast<std::int64_t>(row), count,
                   DeviceFault::Kind::position);
      return -1;
    }
    return position;
  }
};

}  // namespace train::kernels::cuda
