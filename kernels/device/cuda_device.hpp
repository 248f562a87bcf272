#pragma once

#include <cstddef>
#include <memory>
#include <source_location>
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

/// What decides whether the kernels run on a device.
struct DeviceKind {
  int major = 0, minor = 0;  ///< Compute capability.
  int shared_bytes = 0;      ///< Shared memory that a block may have.
};
/// Why they do not, in one line, or nothing. They are compiled for compute capability 8.0 and 9.0
/// (with their relatives of one major number), nothing that the driver could translate for others.
/// In a build with CUDA alone.
[[nodiscard]] std::string refusal_of(const DeviceKind& kind);

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

/// What the driver says of `status` (a cudaError_t), and its name.
[[nodiscard]] std::string cuda_reason(int status);

/// Throws DeviceError with statement, place and the driver's reason unless `status` (a cudaError_t)
/// is success, and clears what the runtime remembers of it. Never blocks.
void check_cuda(int status, const char* statement, const std::source_location& where);

/// A shared library of CUDA's surroundings: found by its name, as LD_LIBRARY_PATH and the system's
/// list have it, else where toolkits are. Never closed: what it gave out must stay valid.
class CudaLibrary {
 public:
  /// A function, of the type that it is asked for as.
  struct Symbol {
    void* address;
    template <class Function>
    operator Function*() const {  // NOLINT: implicit
      return reinterpret_cast<Function*>(address);
    }
  };
  /// Throws DeviceError, beginning with `what`, which says where it was looked for.
  CudaLibrary(const std::string& name, std::string what);
  /// Throws DeviceError.
  [[nodiscard]] Symbol operator[](const char* name) const;

 private:
  std::string what_;
  void* library_;
};

}  // namespace train::kernels

#define TRAIN_CUDA_CHECK(statement) \
  ::train::kernels::check_cuda((statement), #statement, ::std::source_location::current())
