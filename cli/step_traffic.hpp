#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "engine/rank/rank_layout.hpp"

namespace train::cli {

inline constexpr std::size_t kCollectiveKinds = 7;

/// Bytes that one rank sends to others in a training step, by engine::CollectiveKind; without the
/// headers of the transport.
struct StepTraffic {
  std::array<std::size_t, kCollectiveKinds> sent_bytes{};

  [[nodiscard]] std::size_t of(engine::CollectiveKind kind) const {
    return sent_bytes[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] std::size_t total_bytes() const;
};

/// The traffic of the rank that `layout` describes; a pure function of plan and rank.
[[nodiscard]] StepTraffic step_traffic(const engine::ShardPlan& plan,
                                       const engine::RankLayout& layout);

}  // namespace train::cli
