#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace train::kernels {

enum class MemoryKind : std::uint8_t {
  host,    ///< Ordinary host memory.
  pinned,  ///< Host memory that the device accesses too, with full-speed copies.
  device,  ///< Memory of the current CUDA device; not accessible to the host.
  /// Host memory for kernels, which read and write it over the bus; each byte is best touched once.
  /// The host treats it like device memory.
  offloaded,
};

/// Frees memory of one kind.
struct FreeMemory {
  MemoryKind kind = MemoryKind::host;
  void operator()(std::byte* data) const;
};

/// Move-only owner of 64-byte aligned, zero-filled memory. The constructor blocks until it is
/// zeroed.
class Buffer {
 public:
  Buffer() = default;
  /// Throws DeviceError with `name` and the size if there is no memory or no such device.
  Buffer(std::size_t size_bytes, std::string name, MemoryKind kind = MemoryKind::host);

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::unique_ptr<std::byte, FreeMemory> data_;
  std::size_t size_bytes_ = 0;
  std::string name_;
};

}  // namespace train::kernels
