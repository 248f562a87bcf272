#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/sharding/shard_plan.hpp"

namespace train::engine {

/// Sets ShardGroup::owners of all groups: for each parameter named in `whole` a rank in [0, ranks),
/// for the others kCutByRows. The same on every rank: a pure function of the arguments.
///
/// From the largest parameter to the smallest (of equal ones the first of the model), each goes
/// where the fullest rank that would keep its state has least; of equals where least is reduced, of
/// those where least of its own group is, so that a gather has many senders. No rank then has more
/// than the mean and one parameter, where every group is split over all ranks.
void assign_owners(std::vector<ShardGroup>& groups, const std::vector<std::string>& whole,
                   std::int64_t ranks);

}  // namespace train::engine
