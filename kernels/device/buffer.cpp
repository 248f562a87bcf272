#include "kernels/device/buffer.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/base/units.hpp"
#include "kernels/device/device_error.hpp"

namespace train::kernels {

Buffer::Buffer(std::size_t size_bytes, std::string name)
    : size_bytes_(size_bytes), name_(std::move(name)) {
  constexpr std::size_t alignment = 64;
  if (size_bytes == 0) {
    return;
  }
  void* data = nullptr;
  if (size_bytes > PTRDIFF_MAX || posix_memalign(&data, alignment, size_bytes) != 0) {
    throw DeviceError(fmt::format("buffer '{}': no memory for {} ({} bytes)", name_,
                                  format_bytes(size_bytes), size_bytes));
  }
  std::memset(data, 0, size_bytes);
  data_.reset(static_cast<std::byte*>(data));
}

void Buffer::Free::operator()(std::byte* data) const { std::free(data); }

}  // namespace train::kernels
