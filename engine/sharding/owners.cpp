#include "engine/sharding/owners.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/check.hpp"

namespace train::engine {
namespace {

struct WholeParameter {
  std::size_t group = 0;
  std::size_t index = 0;  // In the group.
  std::int64_t count = 0;
};

/// Elements of whole parameters that each rank has been given.
class Loads {
 public:
  Loads(std::size_t groups, std::int64_t ranks)
      : state_(static_cast<std::size_t>(ranks)), reduced_(state_), of_group_(groups, state_) {}

  /// The rank to which a parameter of `group`, whose state is in `parts` parts, goes.
  [[nodiscard]] std::int64_t best(std::size_t group, std::size_t parts) const {
    const std::vector<std::int64_t> fullest = fullest_of_parts(parts);
    const auto key = [&](std::size_t rank) {
      return std::tuple(fullest[rank % parts], reduced_[rank], of_group_[group][rank], rank);
    };
    std::size_t best = 0;
    for (std::size_t rank = 1; rank < state_.size(); ++rank) {
      best = key(rank) < key(best) ? rank : best;
    }
    return static_cast<std::int64_t>(best);
  }

  void add(const WholeParameter& parameter, std::size_t parts, std::int64_t owner) {
    const auto rank = static_cast<std::size_t>(owner);
    for (std::size_t replica = rank % parts; replica < state_.size(); replica += parts) {
      state_[replica] += parameter.count;
    }
    reduced_[rank] += parameter.count;
    of_group_[parameter.group][rank] += parameter.count;
  }

 private:
  /// Of the ranks that keep the same state part.
  [[nodiscard]] std::vector<std::int64_t> fullest_of_parts(std::size_t parts) const {
    std::vector<std::int64_t> fullest(parts, 0);
    for (std::size_t rank = 0; rank < state_.size(); ++rank) {
      fullest[rank % parts] = std::max(fullest[rank % parts], state_[rank]);
    }
    return fullest;
  }

  std::vector<std::int64_t> state_;                  // By rank: in its state part,
  std::vector<std::int64_t> reduced_;                // in its reduce part,
  std::vector<std::vector<std::int64_t>> of_group_;  // and of each group there.
};

std::vector<WholeParameter> largest_first(const std::vector<ShardGroup>& groups,
                                          const std::vector<std::string>& whole) {
  const std::set<std::string> names(whole.begin(), whole.end());
  std::vector<WholeParameter> found;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::vector<Parameter>& parameters = groups[group].parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (names.count(parameters[i].name) > 0) {
        found.push_back({.group = group, .index = i, .count = parameters[i].count()});
      }
    }
  }
  TRAIN_CHECK(found.size() == names.size(), "{} of {} whole parameters are in the model",
              found.size(), names.size());
  std::stable_sort(
      found.begin(), found.end(),
      [](const WholeParameter& a, const WholeParameter& b) { return a.count > b.count; });
  return found;
}

}  // namespace

void assign_owners(std::vector<ShardGroup>& groups, const std::vector<std::string>& whole,
                   std::int64_t ranks) {
  for (ShardGroup& group : groups) {
    group.owners.assign(group.parameters.size(), kCutByRows);
  }
  Loads loads(groups.size(), ranks);
  for (const WholeParameter& parameter : largest_first(groups, whole)) {
    ShardGroup& group = groups[parameter.group];
    const auto parts = static_cast<std::size_t>(group.state_parts);
    const std::int64_t owner = loads.best(parameter.group, parts);
    loads.add(parameter, parts, owner);
    group.owners[parameter.index] = owner;
  }
}

}  // namespace train::engine
