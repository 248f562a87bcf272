#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/rank/plan/rank_layout.hpp"
#include "run/plan/run_plan.hpp"

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

/// Output of `plan`: memory, disk and bytes on the wire under this run's sharding and under each
/// strategy, the collectives of a step, and with `tensors` the rows of each tensor. Allocates no
/// model memory. REQUIRES: plan_of(run.engine) is not an error.
[[nodiscard]] std::string plan_report(const run::RunPlan& run, bool tensors);

/// The first table of plan_report(), for this run's sharding alone. REQUIRES: as plan_report().
[[nodiscard]] std::string needs_report(const run::RunPlan& run);

}  // namespace train::cli
