#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_options.hpp"

namespace train::cli {

inline constexpr std::size_t kCollectiveKinds = 8;

/// Bytes that one rank sends to others per training step, by engine::CollectiveKind; without
/// transport headers.
struct StepTraffic {
  std::array<std::size_t, kCollectiveKinds> sent_bytes{};

  [[nodiscard]] std::size_t of(engine::CollectiveKind kind) const {
    return sent_bytes[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] std::size_t total_bytes() const;
};

/// Traffic of the rank described by `layout`; a pure function of plan and rank.
[[nodiscard]] StepTraffic step_traffic(const engine::ShardPlan& plan,
                                       const engine::RankLayout& layout);

/// Output of `plan`: memory by kind and bytes on the wire under this run's sharding and under each
/// strategy, then this run's shards and the collectives of a step. `snapshots`: copies of each
/// rank's state that its node, one of `nodes`, keeps in memory. Allocates no model memory.
/// REQUIRES: plan_of(options) is not an error.
[[nodiscard]] std::string describe_sharding(const engine::RankOptions& options,
                                            std::int64_t snapshots = 0, std::int64_t nodes = 1);

}  // namespace train::cli
