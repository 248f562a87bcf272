#include "actors/train/memory/staging.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <functional>
#include <numeric>
#include <system_error>

#include "base/text/units.hpp"
#include "engine/host_state.hpp"
#include "kernels/device/stream.hpp"

namespace train::actors {
namespace {

std::size_t bytes_of(std::span<const engine::StateView> state) {
  return std::transform_reduce(state.begin(), state.end(), std::size_t{0}, std::plus<>(),
                               [](const engine::StateView& view) { return view.size_bytes; });
}

}  // namespace

Status Staging::reserve_pinned(std::size_t size_bytes, kernels::MemoryKind kind) {
  try {
    pinned_ = kernels::Buffer(size_bytes, "copy of the state", kind);
  } catch (const kernels::DeviceError& error) {
    return failure(error.what());
  }
  bytes_ = pinned_.data();
  size_bytes_ = size_bytes;
  return {};
}

Status Staging::reserve(std::size_t size_bytes, kernels::MemoryKind kind) {
  if (size_bytes == size_bytes_) {
    return {};
  }
  release();
  if (kind != kernels::MemoryKind::host) {
    return reserve_pinned(size_bytes, kind);
  }
  void* memory =
      ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return failure(fmt::format("no memory for a copy of the state ({}): {}",
                               format_bytes(size_bytes), std::generic_category().message(errno)));
  }
  // Advice only: a kernel without huge pages refuses it without harm.
  (void)::madvise(memory, size_bytes, MADV_HUGEPAGE);
  bytes_ = static_cast<std::byte*>(memory);
  size_bytes_ = size_bytes;
  return {};
}

Status Staging::prepare(std::span<const engine::StateView> state, const kernels::Device& device) {
  return device.staging == kernels::MemoryKind::host ? Status()
                                                     : reserve(bytes_of(state), device.staging);
}

Status Staging::copy(std::span<const engine::StateView> state, const kernels::Device& device) {
  TRAIN_RETURN_IF_ERROR(reserve(bytes_of(state), device.staging));
  views_.assign(state.begin(), state.end());
  std::byte* to = bytes_;
  for (engine::StateView& view : views_) {
    engine::copy_rows(device, view, to);
    view.data = to;
    view.is_bf16 = false;
    to += view.size_bytes;
  }
  return {};
}

void Staging::release_pages() noexcept {
  if (bytes_ != nullptr && pinned_.data() == nullptr &&
      ::madvise(bytes_, size_bytes_, MADV_FREE) != 0) {
    release();
  }
  views_.clear();
}

void Staging::release_pageable() noexcept {
  if (pinned_.data() == nullptr) {
    release();
  }
}

void Staging::release() noexcept {
  if (pinned_.data() != nullptr) {
    pinned_ = {};
  } else if (bytes_ != nullptr) {
    ::munmap(bytes_, size_bytes_);
  }
  bytes_ = nullptr;
  size_bytes_ = 0;
  views_.clear();
}

}  // namespace train::actors
