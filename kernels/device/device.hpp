#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {

struct DeviceMemory {
  std::size_t used_bytes = 0;  ///< Used by all processes, their contexts included.
  std::size_t total_bytes = 0;
};

/// Device of a kernel table: its memory, its streams, and copies to and from the host.
struct Device {
  MemoryKind memory = MemoryKind::host;   ///< Memory that kernels read and write.
  MemoryKind staging = MemoryKind::host;  ///< Host memory that a stream copies from and to.
  MemoryKind offload = MemoryKind::host;  ///< Memory for rarely used buffers (host RAM on a GPU).
  bool knows_bf16 = false;                ///< Kernels take every DType; otherwise f32 only.
  /// Products that are added up may be fused into one, which rounds once. False on the CPU, whose
  /// bits are those of separate products.
  bool joins_products = false;
  /// Makes a stream for kernels, with a thread named `name`. `threads`: host threads that a kernel
  /// may use (CPU only). Blocking. Throws DeviceError.
  std::unique_ptr<Stream> (*make_stream)(std::string name, int threads) = nullptr;
  /// Copies between any two kinds of memory, outside stream order: for host work, which runs after
  /// the device has finished all earlier work, and outside of steps. Blocking. Throws DeviceError.
  void (*copy)(void* to, const void* from, std::size_t size_bytes) = nullptr;
  /// Current memory use of the device; nullptr if it is not counted. Blocking.
  DeviceMemory (*memory_use)() = nullptr;
  /// Number of devices visible to this process (CUDA_VISIBLE_DEVICES); nullptr: one. Blocking.
  int (*count)() = nullptr;
  /// Releases what the driver holds for this process (hundreds of megabytes) until its next use of
  /// the device; nullptr if there is nothing to release. REQUIRES: the process has no memory or
  /// streams there.
  void (*release)() = nullptr;

  /// True if the host may access the memory of kernels.
  [[nodiscard]] bool is_host() const { return memory == MemoryKind::host; }
};

[[nodiscard]] const Device& cpu_device();

}  // namespace train::kernels
