#pragma once

#include <cstdint>
#include <string>

#include "engine/rank/rank_options.hpp"

namespace train::cli {

/// What `plan` prints: memory by kind and bytes on the wire under this run's sharding and under
/// each strategy, then this run's shards and the collectives of a step. `snapshots`: copies of each
/// rank's state that its node, of `nodes`, keeps in memory. Allocates no model memory.
/// REQUIRES: plan_of(options) is not an error.
[[nodiscard]] std::string describe_sharding(const engine::RankOptions& options,
                                            std::int64_t snapshots = 0, std::int64_t nodes = 1);

}  // namespace train::cli
