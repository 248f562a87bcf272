#include "engine/host_state.hpp"

#include <cstdint>
#include <utility>

#include "base/check.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

namespace {

/// Memory for a view's rows as the device holds them.
kernels::Buffer halves_of(const StateView& view) {
  return {view.size_bytes / 2, "bf16 rows of " + view.name};
}

std::int64_t elements_of(const StateView& view) {
  return static_cast<std::int64_t>(view.size_bytes / sizeof(float));
}

}  // namespace

void copy_rows(const kernels::Device& device, const StateView& view, std::byte* to) {
  if (!view.is_bf16) {
    device.copy(to, view.data, view.size_bytes);
    return;
  }
  const kernels::Buffer halves = halves_of(view);
  device.copy(halves.data(), view.data, halves.size_bytes());
  kernels::cpu_backend().unpack_bf16(*kernels::make_inline_stream(1),
                                     {.in = halves.as<std::uint16_t>(),
                                      .out = reinterpret_cast<float*>(to),
                                      .count = elements_of(view)});
}

HostState::HostState(const kernels::Device& device, std::vector<StateView> views,
                     kernels::MemoryKind kind)
    : device_(&device), views_(std::move(views)) {
  std::size_t size_bytes = 0;
  for (const StateView& view : views_) {
    size_bytes += is_apart(view) ? view.size_bytes : 0;
  }
  copy_ = {size_bytes, "state on the host", kind};
  std::byte* place = copy_.data();
  for (StateView& view : views_) {
    places_.push_back(view.data);
    if (is_apart(view)) {
      view.data = place;
      place += view.size_bytes;
    }
  }
}

bool HostState::is_apart(const StateView& view) const {
  return view.is_bf16 || !device_->is_host();
}

void HostState::load() {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (is_apart(views_[i])) {
      StateView held = views_[i];
      held.data = places_[i];
      copy_rows(*device_, held, views_[i].data);
    }
  }
}

void HostState::store() const {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const StateView& view = views_[i];
    if (!is_apart(view)) {
      continue;
    }
    if (!view.is_bf16) {
      device_->copy(places_[i], view.data, view.size_bytes);
      continue;
    }
    const kernels::Buffer halves = halves_of(view);
    kernels::cpu_backend().pack_bf16(*kernels::make_inline_stream(1),
                                     {.in = reinterpret_cast<const float*>(view.data),
                                      .out = halves.as<std::uint16_t>(),
                                      .count = elements_of(view)});
    device_->copy(places_[i], halves.data(), halves.size_bytes());
  }
}

namespace {

/// Offset of `data` in `buffer`. REQUIRES: all `size_bytes` lie in `buffer`.
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
