#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "engine/state_view.hpp"
#include "kernels/device/device.hpp"

namespace train::actors {

/// Memory for one copy of a rank's state, from the system and back to it: while nothing is saved
/// the system may have it. Huge pages are asked for; where there are none it works all the same.
/// Of a device's state it is pinned, into which the device copies by itself and at full speed; that
/// is kept until release(): to pin memory anew takes a good part of a second a GB, for which the
/// next update would wait.
///
/// Threading: one stream at a time. Ownership: owns the bytes that views() point into.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { release(); }

  /// Copies the bytes of `state`, memory of `device`, here, in place of what was held. Memory is
  /// taken on the first call and whenever the size changes. Errors (failure): the system has none;
  /// nothing is held then.
  [[nodiscard]] Status copy(std::span<const engine::StateView> state,
                            const kernels::Device& device = kernels::cpu_device());
  /// Takes the memory that copy() of `state` needs, where that is pinned. Errors: as copy().
  [[nodiscard]] Status prepare(std::span<const engine::StateView> state,
                               const kernels::Device& device);
  /// Drops the copy. The system takes the memory as soon as anyone needs it (it counts as LazyFree
  /// until then); what it has not taken, the next copy() has at no cost. Memory that was returned
  /// comes back a page fault at a time: on a virtual machine that costs more than all the rest of a
  /// save (measured: 2.6 s a GB).
  void release_pages() noexcept;
  /// Gives the memory back, but what is pinned.
  void release_pageable() noexcept;
  /// Gives the memory back.
  void release() noexcept;

  /// What copy() was given, with pointers into this object.
  [[nodiscard]] std::span<const engine::StateView> views() const { return views_; }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

 private:
  [[nodiscard]] Status reserve(std::size_t size_bytes, kernels::MemoryKind kind);
  [[nodiscard]] Status reserve_pinned(std::size_t size_bytes, kernels::MemoryKind kind);

  kernels::Buffer pinned_;  // What bytes_ points to, of a device's state.
  std::byte* bytes_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::vector<engine::StateView> views_;
};

}  // namespace train::actors
