#include "actors/cluster/recovery/membership.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

namespace train::actors {

std::vector<std::int64_t> Membership::places() const {
  std::vector<std::int64_t> places;
  for (std::int64_t place = 0; place <= static_cast<std::int64_t>(held.size()); ++place) {
    if (std::find(missing.begin(), missing.end(), place) == missing.end()) {
      places.push_back(place);
    }
  }
  return places;
}

std::string nodes_have(std::span<const std::int64_t> nodes) {
  return nodes.size() == 1 ? fmt::format("node {} has", nodes.front())
                           : fmt::format("nodes {} have", fmt::join(nodes, ", "));
}

std::string missing_have(const Membership& met, std::span<const std::int64_t> members) {
  std::vector<std::int64_t> nodes;
  for (const std::int64_t place : met.missing) {
    nodes.push_back(members[static_cast<std::size_t>(place)]);
  }
  return nodes_have(nodes);
}

bool has_step(const HeldSteps& steps, std::int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

std::optional<std::int64_t> newest_common(std::span<const NodeSteps> nodes, std::int64_t reported) {
  std::set<std::int64_t, std::greater<>> steps;  // of node 0's ranks: others are of no use
  if (!nodes.empty()) {
    const HeldSteps& buddy = nodes[1 % nodes.size()].buddy;
    steps.insert(nodes.front().own.begin(), nodes.front().own.end());
    steps.insert(buddy.begin(), buddy.end());
  }
  for (const std::int64_t step : steps) {
    bool everywhere = step <= reported;
    for (std::size_t node = 0; everywhere && node < nodes.size(); ++node) {
      everywhere =
          has_step(nodes[node].own, step) || has_step(nodes[(node + 1) % nodes.size()].buddy, step);
    }
    if (everywhere) {
      return step;
    }
  }
  return std::nullopt;
}

}  // namespace train::actors
