#include "engine/rank/host_device_buffer.hpp"

#include "base/check.hpp"

namespace train::engine {
namespace {

/// Where `data` lies in `buffer`. REQUIRES: all `size_bytes` do.
std::size_t offset_of(const kernels::Buffer& buffer, const void* data, std::size_t size_bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  TRAIN_CHECK(at >= begin && at - begin <= buffer.size_bytes() &&
                  size_bytes <= buffer.size_bytes() - (at - begin),
              "{} bytes outside of '{}'", size_bytes, buffer.name());
  return at - begin;
}

}  // namespace

HostDeviceBuffer::HostDeviceBuffer(const kernels::KernelTable& kernels, std::size_t size_bytes,
                                   const std::string& name, bool with_host_copy)
    : kernels_(&kernels), device_(size_bytes, name, kernels.device->memory) {
  if (with_host_copy && !kernels.device->is_host() && size_bytes > 0) {
    host_ = {size_bytes, name + " of the host", kernels.device->staging};
  }
}

void HostDeviceBuffer::copy_in(kernels::Stream& stream, const void* host_data,
                               std::size_t size_bytes) const {
  if (is_apart() && size_bytes > 0) {
    kernels_->copy(stream, {.out = device_.data() + offset_of(host_, host_data, size_bytes),
                            .in = host_data,
                            .size_bytes = static_cast<std::int64_t>(size_bytes)});
  }
}

void HostDeviceBuffer::copy_out(kernels::Stream& stream, const void* device_data,
                                std::size_t size_bytes) const {
  if (is_apart() && size_bytes > 0) {
    kernels_->copy(stream, {.out = host_.data() + offset_of(device_, device_data, size_bytes),
                            .in = device_data,
                            .size_bytes = static_cast<std::int64_t>(size_bytes)});
  }
}

}  // namespace train::engine
