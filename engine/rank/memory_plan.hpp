#pragma once

#include <cstddef>
#include <cstdint>

namespace train::engine {

/// Bytes that one rank's RankEngine holds, by kind. Padding is included; code, libraries, staging
/// of snapshots and the data files' pages are not.
struct MemoryPlan {
  std::size_t parameters_bytes = 0;  ///< fp32 masters, and compute weights that are not gathered.
  std::size_t gradients_bytes = 0;   ///< The gradient of a step, as the strategy keeps it.
  std::size_t optimizer_bytes = 0;   ///< State tensors of the optimizer.
  std::size_t lane_sums_bytes = 0;   ///< Further partial sums of lanes: the price of P1.
  std::size_t gathered_bytes = 0;    ///< Buffers of gathered weights, and rows kept for backward.
  std::size_t transfer_bytes =
      0;  ///< Bytes on their way to and from other ranks; gradient buffers.
  std::size_t activations_bytes = 0;  ///< The model's workspace: activations and scratch.
  std::size_t buffers_bytes = 0;      ///< Lane slots, loss sums, scratch of norms and optimizer.

  std::size_t offloaded_bytes = 0;  ///< Of all these, what a device leaves to the host.

  [[nodiscard]] std::size_t total_bytes() const {
    return parameters_bytes + gradients_bytes + optimizer_bytes + lane_sums_bytes + gathered_bytes +
           transfer_bytes + activations_bytes + buffers_bytes;
  }
  /// Of a device's own memory, where one computes.
  [[nodiscard]] std::size_t device_bytes() const { return total_bytes() - offloaded_bytes; }
  friend bool operator==(const MemoryPlan&, const MemoryPlan&) = default;
};

}  // namespace train::engine
