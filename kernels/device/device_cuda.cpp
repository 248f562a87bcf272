#include <cuda_runtime.h>
#include <fmt/format.h>

#include <string>
#include <utility>

#include "kernels/device/cuda_device.hpp"
#include "kernels/device/cuda_stream.hpp"
#include "kernels/device/device_gate.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {
namespace {

std::string absence_of_devices() {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    cudaGetLastError();  // Clears the error, which the next call would report.
    return "no CUDA device: " + cuda_reason(status);
  }
  if (count == 0) {
    return "no CUDA device";
  }
  DeviceKind kind;
  const auto ask = [](int& value, cudaDeviceAttr attribute) {
    return cudaDeviceGetAttribute(&value, attribute, 0) == cudaSuccess;
  };
  if (!ask(kind.major, cudaDevAttrComputeCapabilityMajor) ||
      !ask(kind.minor, cudaDevAttrComputeCapabilityMinor) ||
      !ask(kind.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin)) {
    return "CUDA device 0 does not answer: " + cuda_reason(cudaGetLastError());
  }
  return refusal_of(kind);
}

/// Allocates zero-filled memory.
cudaError_t allocate(MemoryKind kind, std::size_t size_bytes, void*& data) {
  const DeviceGate::Call call;
  // With unified addressing, kernels access pinned memory in place.
  cudaError_t status = kind == MemoryKind::device
                           ? cudaMalloc(&data, size_bytes)
                           : cudaHostAlloc(&data, size_bytes, cudaHostAllocPortable);
  if (status == cudaSuccess) {
    status = cudaMemset(data, 0, size_bytes);
  }
  if (status == cudaSuccess) {
    status = cudaStreamSynchronize(nullptr);  // Own streams do not synchronise with the default
                                              // stream.
  }
  return status;
}

}  // namespace

std::string refusal_of(const DeviceKind& kind) {
  if (kind.major != 8 && kind.major != 9) {
    return fmt::format("CUDA device 0 has compute capability {}.{}; this build is for 8.x and 9.x",
                       kind.major, kind.minor);
  }
  constexpr int least_bytes = 162 << 10;  // Compute capabilities 8.0 and 9.0 have 163 and 227 KiB.
  if (kind.shared_bytes < least_bytes) {
    return fmt::format(
        "CUDA device 0 (compute capability {}.{}) has {} KiB of shared memory for a block; "
        "attention takes {}",
        kind.major, kind.minor, kind.shared_bytes >> 10, least_bytes >> 10);
  }
  return {};
}

std::string cuda_device_name() {
  cudaDeviceProp properties{};
  TRAIN_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  return fmt::format("sm{}{} {}", properties.major, properties.minor, properties.name);
}

const std::string& cuda_absence() {
  static const std::string absence = absence_of_devices();
  return absence;
}

const Device& cuda_device() {
  static constexpr Device device{
      .memory = MemoryKind::device,
      .staging = MemoryKind::pinned,
      .offload = MemoryKind::offloaded,
      .knows_bf16 = true,
      .joins_products = true,
      .make_stream = [](std::string name,
                        int /*threads*/) { return make_cuda_stream(std::move(name)); },
      .copy =
          [](void* to, const void* from, std::size_t size_bytes) {
            TRAIN_CUDA_CHECK(cudaMemcpy(to, from, size_bytes, cudaMemcpyDefault));
            // A copy from pageable memory may still be running, and own streams do not synchronise
            // with the default stream.
            TRAIN_CUDA_CHECK(cudaStreamSynchronize(nullptr));
          },
      .memory_use =
          [] {
            std::size_t free_bytes = 0;
            DeviceMemory memory;
            TRAIN_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &memory.total_bytes));
            memory.used_bytes = memory.total_bytes - free_bytes;
            return memory;
          },
      .count =
          [] {
            int count = 0;
            return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
          },
      .release =
          [] {
            TRAIN_CUDA_CHECK(cudaDeviceReset());
            forget_shared_limits();
          }};
  return device;
}

std::unique_ptr<Stream> make_cuda_stream(std::string name, int device) {
  if (!cuda_absence().empty()) {
    throw DeviceError(fmt::format("stream '{}': {}", name, cuda_absence()));
  }
  return std::make_unique<CudaStream>(std::move(name), device);
}

void* cuda_memory(MemoryKind kind, std::size_t size_bytes, std::string& reason) {
  if (!cuda_absence().empty()) {
    reason = cuda_absence();
    return nullptr;
  }
  void* data = nullptr;
  const cudaError_t status = allocate(kind, size_bytes, data);
  if (status != cudaSuccess) {
    cudaGetLastError();
    free_cuda_memory(kind, data);
    reason = cuda_reason(status);
    return nullptr;
  }
  return data;
}

// Errors of these calls can only repeat a failure of the device that its user already knows.
void free_cuda_memory(MemoryKind kind, void* data) {
  const DeviceGate::Call call;
  if (kind == MemoryKind::device) {
    cudaFree(data);
  } else {
    cudaFreeHost(data);
  }
}

}  // namespace train::kernels
