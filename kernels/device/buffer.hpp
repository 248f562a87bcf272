#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace train::kernels {

enum class MemoryKind : std::uint8_t {
  host,    ///< Plain memory.
  pinned,  ///< Of the host, but the device reads and writes it as well, and copies at full speed.
  device,  ///< Of the current CUDA device; the host may not touch it.
  /// Of the host, for kernels: they read and write it over the bus, each byte best once. For the
  /// host's own work it is like the device's.
  offloaded,
};

/// Gives memory of one kind back.
struct FreeMemory {
  MemoryKind kind = MemoryKind::host;
  void operator()(std::byte* data) const;
};

/// Move-only owner of memory, 64-byte aligned, zero-filled. Blocks until it is.
class Buffer {
 public:
  Buffer() = default;
  /// Throws DeviceError naming `name` and the size when there is no memory, or no such device.
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
