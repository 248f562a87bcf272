#include "kernels/device/buffer.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/text/units.hpp"
#include "kernels/device/cuda_device.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {
namespace {

/// Returns nullptr if there is no memory.
void* host_memory(std::size_t size_bytes) {
  constexpr std::size_t alignment = 64;
  void* data = nullptr;
  if (size_bytes > PTRDIFF_MAX || posix_memalign(&data, alignment, size_bytes) != 0) {
    return nullptr;
  }
  std::memset(data, 0, size_bytes);
  return data;
}

void copy_host(void* to, const void* from, std::size_t size_bytes) {
  if (size_bytes > 0) {
    std::memcpy(to, from, size_bytes);
  }
}

}  // namespace

Buffer::Buffer(std::size_t size_bytes, std::string name, MemoryKind kind)
    : data_(nullptr, FreeMemory{kind}), size_bytes_(size_bytes), name_(std::move(name)) {
  if (size_bytes == 0) {
    return;
  }
  std::string reason;
  void* data =
      kind == MemoryKind::host ? host_memory(size_bytes) : cuda_memory(kind, size_bytes, reason);
  if (data == nullptr) {
    throw DeviceError(fmt::format("buffer '{}': no memory for {} ({} bytes){}{}", name_,
                                  format_bytes(size_bytes), size_bytes, reason.empty() ? "" : ": ",
                                  reason));
  }
  data_.reset(static_cast<std::byte*>(data));
}

void FreeMemory::operator()(std::byte* data) const {
  if (kind == MemoryKind::host) {
    std::free(data);
  } else {
    free_cuda_memory(kind, data);
  }
}

const Device& cpu_device() {
  static constexpr Device device{.make_stream = make_thread_stream, .copy = copy_host};
  return device;
}

}  // namespace train::kernels
