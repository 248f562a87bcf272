#pragma once

#include <span>
#include <vector>

#include "engine/state_view.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/device.hpp"

namespace train::engine {

/// Rows of a rank's state where the host may read and write them, as fp32: on the CPU where they
/// are, of a device in a copy of them.
///
/// Threading: as of RankEngine's calls "in stream order". Blocking.
class HostState {
 public:
  /// `views`: of memory of `device`, which must outlive this. The copy holds zeros until load().
  HostState(const kernels::Device& device, std::vector<StateView> views);

  [[nodiscard]] std::span<StateView> views() { return views_; }
  /// Brings the device's bytes here; nothing on the CPU.
  void load();
  /// Brings these bytes to the device; nothing on the CPU.
  void store() const;

 private:
  const kernels::Device* device_;
  std::vector<StateView> views_;
  std::vector<std::byte*> places_;  // On the device, by view; none on the CPU.
  kernels::Buffer copy_;
};

}  // namespace train::engine
