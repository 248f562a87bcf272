#pragma once

#include <cstddef>
#include <memory>
#include <source_location>
#include <string>

#include "kernels/device/buffer.hpp"
#include "kernels/device/device.hpp"
#include "kernels/device/stream.hpp"

// CUDA devices. Defined by device_cuda.cpp or, in a build without CUDA, by device_none.cpp, which
// has no device.
namespace train::kernels {

/// Reason, in one line, why no kernel can run on a CUDA device here; empty if one can. The driver
/// is asked once.
[[nodiscard]] const std::string& cuda_absence();

/// Device properties that decide whether the kernels run.
struct DeviceKind {
  int major = 0, minor = 0;  ///< Compute capability.
  int shared_bytes = 0;      ///< Shared memory available to a block.
};
/// Reason, in one line, why the kernels do not run on such a device; empty if they do. They are
/// compiled for compute capabilities 8.0 and 9.0 (and later minors of each), without code that a
/// driver could translate for others. Only in a build with CUDA.
[[nodiscard]] std::string refusal_of(const DeviceKind& kind);

/// Makes an in-order queue of CUDA device `device`, with a host thread named `name` that launches
/// submitted work. Blocks until the device is ready. Throws DeviceError if there is no such device.
/// Work given to enqueue() runs after the device has finished all earlier work and before later
/// work starts, which leaves the device idle meanwhile. The mark is that of the last work handed to
/// the device.
[[nodiscard]] std::unique_ptr<Stream> make_cuda_stream(std::string name, int device = 0);

/// Architecture and name of device 0 ("sm90 NVIDIA H200"). Only in a build with CUDA. Throws
/// DeviceError.
[[nodiscard]] std::string cuda_device_name();

/// CUDA device: device memory, pinned staging memory, CUDA streams. Only in a build with CUDA.
[[nodiscard]] const Device& cuda_device();

/// Allocates zero-filled memory of the current device, or pinned memory; nullptr and a reason if
/// there is none. REQUIRES: kind is not host; size_bytes > 0.
[[nodiscard]] void* cuda_memory(MemoryKind kind, std::size_t size_bytes, std::string& reason);
void free_cuda_memory(MemoryKind kind, void* data);

/// The driver's name and text of `status` (a cudaError_t).
[[nodiscard]] std::string cuda_reason(int status);

/// Throws DeviceError with statement, place and the driver's reason unless `status` (a cudaError_t)
/// is success, and clears the runtime's last error. Never blocks.
void check_cuda(int status, const char* statement, const std::source_location& where);

/// Shared library of the CUDA toolkit: searched by name (LD_LIBRARY_PATH, system paths), then in
/// toolkit directories. Never closed, as its functions must stay valid.
class CudaLibrary {
 public:
  /// Function, converted to the type it is assigned to.
  struct Symbol {
    void* address;
    template <class Function>
    operator Function*() const {  // NOLINT: implicit
      return reinterpret_cast<Function*>(address);
    }
  };
  /// Throws DeviceError that begins with `what`, which says where the library was searched.
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
