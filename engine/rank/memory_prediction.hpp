#pragma once

#include "engine/rank/memory_plan.hpp"
#include "engine/rank/rank_options.hpp"

namespace train::engine {

/// What RankEngine::allocated() of these options would be, byte for byte, without allocating
/// anything. REQUIRES: plan_of(options) is not an error.
[[nodiscard]] MemoryPlan plan_memory(const RankOptions& options);

}  // namespace train::engine
