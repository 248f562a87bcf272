#pragma once

#include <cstdint>

namespace train::kernels {

/// Scale and checks of an update, read on the device, so that the host never waits for the norm.
struct UpdateGuard {
  float grad_scale = 1.0F;     ///< min(1, clip / (norm + 1e-6)); 1 when clip is 0.
  float grad_norm = 0.0F;      ///< Before clipping.
  std::int32_t nonfinite = 0;  ///< Sticky: a loss or norm was not finite; weights no longer change.
  std::int32_t reserved = 0;
  double loss = 0.0;  ///< loss_scale * cross_entropy + z_scale * z_squared.
};

}  // namespace train::kernels
