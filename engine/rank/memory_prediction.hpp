#pragma once

#include "engine/rank/memory_plan.hpp"
#include "engine/rank/rank_engine.hpp"

namespace train::engine {

/// What RankEngine::allocated() of these options would be, byte for byte, without allocating
/// anything. REQUIRES: plan_of(options) is not an error.
[[nodiscard]] MemoryPlan plan_memory(const RankEngine::Options& options);

}  // namespace train::engine
