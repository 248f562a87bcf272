#include <cstring>

#include "kernels/device/device.hpp"

namespace train::kernels {
namespace {

void copy_host(void* to, const void* from, std::size_t size_bytes) {
  if (size_bytes > 0) {
    std::memcpy(to, from, size_bytes);
  }
}

}  // namespace

const Device& cpu_device() {
  static constexpr Device device{.make_stream = make_thread_stream, .copy = copy_host};
  return device;
}

}  // namespace train::kernels
