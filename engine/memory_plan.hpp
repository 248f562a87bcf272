#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/rank_engine.hpp"

namespace train::engine {

/// Bytes that a RankEngine holds, by kind. Padding of the flat buffers is included; code, libraries
/// and the data files' pages are not.
struct MemoryPlan {
  std::size_t parameters_bytes = 0;   ///< fp32 master weights.
  std::size_t gradients_bytes = 0;    ///< Partial sums of the lane trees.
  std::size_t optimizer_bytes = 0;    ///< AdamW moments.
  std::size_t activations_bytes = 0;  ///< The model's workspace: activations and scratch.
  std::size_t buffers_bytes = 0;      ///< Lane slots, loss sums, scratch of the norms.

  [[nodiscard]] std::size_t total_bytes() const {
    return parameters_bytes + gradients_bytes + optimizer_bytes + activations_bytes + buffers_bytes;
  }
};

/// Pure: allocates none of it.
[[nodiscard]] MemoryPlan plan_memory(const RankEngine::Options& options);

}  // namespace train::engine
