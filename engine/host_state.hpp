#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/state_view.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/device.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {

struct KernelTable;

}  // namespace train::kernels

namespace train::engine {

/// Copies the rows of `view`, which `device` holds, to memory of the host, as fp32. Blocking.
void copy_rows(const kernels::Device& device, const StateView& view, std::byte* to);

/// Rows of a rank's state where the host may read and write them, as fp32: fp32 rows of the CPU
/// where they are, bf16 ones and those of a device in a copy of them.
///
/// Threading: as of RankEngine's calls "in stream order". Blocking.
class HostState {
 public:
  /// `views`: of memory of `device`, which must outlive this. The copy holds zeros until load().
  /// Callers that load it repeatedly should use `kind` device.staging: the device copies there at
  /// full speed, but allocating it takes a good part of a second per GB. Throws
  /// kernels::DeviceError when there is no memory.
  HostState(const kernels::Device& device, std::vector<StateView> views,
            kernels::MemoryKind kind = kernels::MemoryKind::host);

  [[nodiscard]] std::span<StateView> views() { return views_; }
  /// Copies the rows to the host; no-op for rows that are in host memory.
  void load();
  /// Copies them back; no-op for rows that are in host memory.
  void store() const;

 private:
  [[nodiscard]] bool is_apart(const StateView& view) const;

  const kernels::Device* device_;
  std::vector<StateView> views_;
  std::vector<std::byte*> places_;  // Addresses in the rank's memory, by view.
  kernels::Buffer copy_;
};

/// Memory that kernels and the host both work on, each on a copy of its own: what one has written
/// the other sees after a copy on a stream. On the CPU it is one piece of memory, and nothing is
/// copied.
///
/// Threading: as of a stream's work: what the host writes or reads of it must not be on its way.
/// Ownership: owns both copies; borrows the kernels.
class HostDeviceBuffer {
 public:
  HostDeviceBuffer() = default;
  /// Zero-filled. Without `with_host_copy` the host works on none of it, and it has no copy there.
  /// Throws kernels::DeviceError when there is no memory.
  HostDeviceBuffer(const kernels::KernelTable& kernels, std::size_t size_bytes,
                   const std::string& name, bool with_host_copy = true);

  template <class T>
  [[nodiscard]] T* device() const {
    return device_.as<T>();
  }
  template <class T>
  [[nodiscard]] T* host() const {
    return is_apart() ? host_.as<T>() : device_.as<T>();
  }

  /// Enqueue the copy of `count` elements from there on, a place in the one or the other copy.
  template <class T>
  void to_device(kernels::Stream& stream, const T* host_data, std::size_t count = 1) const {
    copy_in(stream, host_data, count * sizeof(T));
  }
  template <class T>
  void to_host(kernels::Stream& stream, const T* device_data, std::size_t count = 1) const {
    copy_out(stream, device_data, count * sizeof(T));
  }

  /// Bytes of one copy.
  [[nodiscard]] std::size_t size_bytes() const { return device_.size_bytes(); }

 private:
  [[nodiscard]] bool is_apart() const { return host_.data() != nullptr; }
  void copy_in(kernels::Stream& stream, const void* host_data, std::size_t size_bytes) const;
  void copy_out(kernels::Stream& stream, const void* device_data, std::size_t size_bytes) const;

  const kernels::KernelTable* kernels_ = nullptr;
  kernels::Buffer device_;
  kernels::Buffer host_;  // None on the CPU.
};

}  // namespace train::engine
