#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace train {

/// Owns a file descriptor, -1 for none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset(other.release());
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }

  [[nodiscard]] int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(value_, -1); }
  void reset(int value = -1) {
    if (value_ >= 0) {
      ::close(value_);
    }
    value_ = value;
  }

 private:
  int value_ = -1;
};

/// Unmaps so many bytes.
struct Unmap {
  std::size_t size_bytes = 0;
  void operator()(std::byte* data) const { ::munmap(data, size_bytes); }
};
/// Owns a mapping made by mmap().
using Mapping = std::unique_ptr<std::byte, Unmap>;

}  // namespace train
