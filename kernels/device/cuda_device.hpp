#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/device/buffer.hpp"
#include "kernels/device/device.hpp"
#include "kernels/device/stream.hpp"

// What a build with CUDA knows of devices. device_cuda.cpp defines these, or, in a build without,
// device_none.cpp, which has none.
namespace train::kernels {

/// Why no kernel can run on a CUDA device here, in one line; empty where one can. Asked of the
/// driver once.
[[nodiscard]] const std::string& cuda_absence();

/// An in-order queue of CUDA device `device`, with a host thread named `name` that launches what is
/// submitted. Blocks until the device is ready. Throws DeviceError where there is no such device.
/// Work handed to enqueue() runs when the device has done all that came before, and holds back what
/// comes after: a gap on the device. The mark is that of the work handed to the device last.
[[nodiscard]] std::unique_ptr<Stream> make_cuda_stream(std::string name, int device = 0);

/// Architecture and name of device 0 ("sm90 NVIDIA H200"). In a build with CUDA alone. Throws
/// DeviceError.
[[nodiscard]] std::string cuda_device_name();

/// Device memory, pinned memory for staging, CUDA streams. In a build with CUDA alone.
[[nodiscard]] const Device& cuda_device();

/// Zero-filled memory of the current device, or pinned; nullptr, and a reason, where there is none.
/// REQUIRES: kind is not host; size_bytes > 0.
[[nodiscard]] void* cuda_memory(MemoryKind kind, std::size_t size_bytes, std::string& reason);
void free_cuda_memory(MemoryKind kind, void* data);

}  // namespace train::kernels
