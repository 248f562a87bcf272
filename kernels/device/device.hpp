#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {

struct DeviceMemory {
  std::size_t used_bytes = 0;  ///< By all processes, their contexts included.
  std::size_t total_bytes = 0;
};

/// What the kernels of a table run on: the memory they work on, their streams, and the way between
/// that memory and the host's.
struct Device {
  MemoryKind memory = MemoryKind::host;   ///< Of all that kernels read and write.
  MemoryKind staging = MemoryKind::host;  ///< Of the host, for what a stream copies in or out.
  MemoryKind offload = MemoryKind::host;  ///< For what kernels seldom need and `memory` is dear to.
  bool knows_bf16 = false;                ///< Its kernels take every DType; else f32 alone.
  /// Products that are added up may be computed as one, which rounds once. Not of the CPU, whose
  /// bits are those of several.
  bool joins_products = false;
  /// A stream for kernels, with a thread named `name`. `threads`: that a kernel may use, where they
  /// are the host's. Blocking. Throws DeviceError.
  std::unique_ptr<Stream> (*make_stream)(std::string name, int threads) = nullptr;
  /// Copies between memory of any two kinds, in no stream's order: for host work, which comes when
  /// a device has done all before it, and outside of steps. Blocking. Throws DeviceError.
  void (*copy)(void* to, const void* from, std::size_t size_bytes) = nullptr;
  /// Of the device now; nullptr where nobody counts. Blocking. Throws DeviceError.
  DeviceMemory (*memory_use)() = nullptr;
  /// Those that this process may use (CUDA_VISIBLE_DEVICES); nullptr: one. Blocking.
  int (*count)() = nullptr;
  /// Gives back what the driver keeps for this process, hundreds of megabytes, until it uses the
  /// device again; nullptr where there is nothing. REQUIRES: it has neither memory nor streams
  /// there.
  void (*release)() = nullptr;

  /// The host may touch what kernels work on.
  [[nodiscard]] bool is_host() const { return memory == MemoryKind::host; }
};

[[nodiscard]] const Device& cpu_device();

}  // namespace train::kernels
