#pragma once

#include "engine/model/model.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_options.hpp"

// Memory that the parts of a rank allocate, planned without allocating anything.

namespace train::engine {

/// Memory of a rank with this layout, all parts included, but for the model's activations.
[[nodiscard]] MemoryPlan plan_beside_activations(const RankLayout& layout, const ShardPlan& plan,
                                                 const RankOptions& options);

/// RankEngine::allocated() of these options, byte for byte, without allocating
/// memory. REQUIRES: plan_of(options) is not an error.
[[nodiscard]] MemoryPlan plan_memory(const RankOptions& options);
/// Bytes of the activations of a rank with this layout.
[[nodiscard]] std::size_t plan_activations(const RankLayout& layout, const RankOptions& options);

/// Returns `options` of the phase whose ranks need the most memory (plan_memory()).
[[nodiscard]] RankOptions largest_phase(const RankOptions& options);

}  // namespace train::engine
