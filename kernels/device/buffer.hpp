#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace train::kernels {

/// Move-only owner of device memory (host memory on the CPU), 64-byte aligned, zero-filled.
class Buffer {
 public:
  Buffer() = default;
  /// Throws DeviceError naming `name` and the size when there is no memory.
  Buffer(std::size_t size_bytes, std::string name);

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_bytes_ = 0;
  std::string name_;
};

}  // namespace train::kernels
