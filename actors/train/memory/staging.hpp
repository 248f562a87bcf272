#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "engine/state_view.hpp"
#include "kernels/device/device.hpp"

namespace train::actors {

/// Staging memory for one copy of a rank's state. The system may reclaim it while no save is under
/// way. Requests huge pages, and works without them. For a device's state it is pinned memory,
/// which the device fills by itself at full speed, kept until release(): pinning memory anew takes
/// a good part of a second per GB, and the next update would wait for it.
///
/// Threading: one stream at a time. Ownership: owns the bytes that views() point into.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { release(); }

  /// Copies the bytes of `state`, memory of `device`, here, replacing the held copy. Allocates on
  /// the first call and whenever the size changes. Errors (failure): out of memory; no copy is held
  /// then.
  [[nodiscard]] Status copy(std::span<const engine::StateView> state,
                            const kernels::Device& device = kernels::cpu_device());
  /// Allocates the memory for copy() of `state` if it is pinned. Errors: as copy().
  [[nodiscard]] Status prepare(std::span<const engine::StateView> state,
                               const kernels::Device& device);
  /// Drops the copy. The system reclaims the memory on demand (it counts as LazyFree until then);
  /// the next copy() reuses pages not yet reclaimed at no cost. Returned memory comes back a page
  /// fault at a time: on a virtual machine this costs more than the rest of a save (measured: 2.6 s
  /// per GB).
  void release_pages() noexcept;
  /// Frees the memory unless it is pinned.
  void release_pageable() noexcept;
  /// Frees the memory.
  void release() noexcept;

  /// Views given to copy(), with pointers into this object.
  [[nodiscard]] std::span<const engine::StateView> views() const { return views_; }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

 private:
  [[nodiscard]] Status reserve(std::size_t size_bytes, kernels::MemoryKind kind);
  [[nodiscard]] Status reserve_pinned(std::size_t size_bytes, kernels::MemoryKind kind);

  kernels::Buffer pinned_;  // Target of bytes_ for a device's state.
  std::byte* bytes_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::vector<engine::StateView> views_;
};

}  // namespace train::actors
