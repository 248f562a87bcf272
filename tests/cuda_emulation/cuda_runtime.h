#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_emulation/block.hpp"
#include "tests/support/devices/guarded_memory.hpp"

// CUDA as far as the kernels use it, on the CPU: their sources compile as plain C++ and run thread
// after thread. It finds wrong indices, sums, masks and barriers, not races, and says nothing of
// speed. What is asynchronous on a device is done at once; memory of the device is no one else's.

// NOLINTBEGIN: names of CUDA.
#define __global__
#define __host__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

using uint3 = cuda_emulation::Index;
using dim3 = cuda_emulation::Extent;
inline const cuda_emulation::Index& threadIdx = cuda_emulation::here().thread;
inline const cuda_emulation::Index& blockIdx = cuda_emulation::here().block;
inline const cuda_emulation::Extent& blockDim = cuda_emulation::here().threads;
inline const cuda_emulation::Extent& gridDim = cuda_emulation::here().blocks;

struct uint4 {
  std::uint32_t x, y, z, w;
};

using std::isfinite;
using std::isnan;
using std::max;
using std::min;

inline void __syncthreads() { cuda_emulation::wait_for_block(); }
inline void __threadfence_system() {}
inline void __syncwarp() { cuda_emulation::wait_for_warp(); }

namespace cuda_emulation {

template <class T>
T value_of_lane(T value, unsigned lane) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace cuda_emulation

template <class T>
T __shfl_xor_sync(unsigned /*lanes*/, T value, int mask) {
  return cuda_emulation::value_of_lane(value,
                                       cuda_emulation::lane_index() ^ static_cast<unsigned>(mask));
}

template <class T>
T __shfl_down_sync(unsigned /*lanes*/, T value, unsigned by, int width) {
  const unsigned lane = cuda_emulation::lane_index();
  const unsigned end = (lane / static_cast<unsigned>(width) + 1) * static_cast<unsigned>(width);
  return cuda_emulation::value_of_lane(value, lane + by < end ? lane + by : lane);
}

template <class T>
T __shfl_sync(unsigned /*lanes*/, T value, int lane) {
  return cuda_emulation::value_of_lane(value, static_cast<unsigned>(lane));
}

inline unsigned __ballot_sync(unsigned /*lanes*/, int value) {
  return cuda_emulation::ballot(value != 0);
}

template <class T>
unsigned __match_any_sync(unsigned /*lanes*/, T value) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return cuda_emulation::lanes_with(bits);
}

inline int __popc(unsigned value) { return std::popcount(value); }
inline std::uint32_t __float_as_uint(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float __uint_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float normcdff(float x) {
  return static_cast<float>(0.5 * erfc(static_cast<double>(x) / -1.4142135623730951));
}

template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}
template <class T>
T atomicCAS(T* at, T expected, T value) {
  const T before = *at;
  *at = before == expected ? value : before;
  return before;
}

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorNotReady = 600 };
enum { cudaStreamNonBlocking = 1, cudaHostAllocPortable = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaDeviceAttr {
  cudaDevAttrComputeCapabilityMajor,
  cudaDevAttrComputeCapabilityMinor,
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
  cudaDevAttrMultiProcessorCount
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

struct cudaDeviceProp {
  char name[16] = "emulated";
  int major = cuda_emulation::capability(), minor = 0;
};

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

inline cudaError_t cuda_emulation_memory(void** data, std::size_t size_bytes, bool pinned) {
  *data = train::test::guarded_memory(size_bytes, pinned);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaHostAlloc(void** data, std::size_t size_bytes, unsigned) {
  return cuda_emulation_memory(data, size_bytes, true);
}
inline cudaError_t cudaMalloc(void** data, std::size_t size_bytes) {
  return cuda_emulation_memory(data, size_bytes, false);
}
inline cudaError_t cudaMallocAsync(void** data, std::size_t size_bytes, cudaStream_t) {
  return cuda_emulation_memory(data, size_bytes, false);
}
inline cudaError_t cudaFree(void* data) {
  train::test::free_guarded_memory(data);
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }
inline cudaError_t cudaFreeAsync(void* data, cudaStream_t) { return cudaFree(data); }
inline cudaError_t cudaMemset(void* data, int value, std::size_t size_bytes) {
  const train::test::DeviceWork work;
  std::memset(data, value, size_bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* data, int value, std::size_t size_bytes, cudaStream_t) {
  return cudaMemset(data, value, size_bytes);
}
inline cudaError_t cudaMemcpyAsync(void* out, const void* in, std::size_t size_bytes,
                                   cudaMemcpyKind, cudaStream_t) {
  const train::test::DeviceWork work;
  std::memmove(out, in, size_bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* out, const void* in, std::size_t size_bytes,
                              cudaMemcpyKind kind) {
  return cudaMemcpyAsync(out, in, size_bytes, kind, nullptr);
}
/// As many as CUDA_VISIBLE_DEVICES lists; one if it says nothing.
inline cudaError_t cudaGetDeviceCount(int* count) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::size_t length = visible == nullptr ? 0 : std::strlen(visible);
  *count = 1 + static_cast<int>(std::count(visible, visible + length, ','));
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? cuda_emulation::capability()
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin
               ? cuda_emulation::most_shared_bytes()
           : attribute == cudaDevAttrMultiProcessorCount ? cuda_emulation::multiprocessors
                                                         : 0;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = *total_bytes = std::size_t{4} << 30U;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "emulated"; }
inline const char* cudaGetErrorName(cudaError_t) { return "emulated"; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
struct CUevent_st {
  std::chrono::steady_clock::time_point at;
};
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st();
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int size_bytes) {
  cuda_emulation::allow_shared(kernel, static_cast<std::size_t>(size_bytes));
  return cudaSuccess;
}

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  const train::test::DeviceWork work;
  cuda_emulation::check_shared(reinterpret_cast<const void*>(kernel), config->dynamicSmemBytes);
  cuda_emulation::run_grid(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                           [&] { kernel(args...); });
  return cudaSuccess;
}
// NOLINTEND
