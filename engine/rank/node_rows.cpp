#include "engine/rank/node_rows.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "base/check.hpp"
#include "engine/rank/shard_rows.hpp"

namespace train::engine {

Part node_part(const ShardPlan& plan, std::size_t group, std::int64_t rank, const RankSpan& node) {
  TRAIN_CHECK(rank >= node.first && rank < node.end, "rank {} is not of {} .. {}", rank, node.first,
              node.end);
  const std::int64_t parts = plan.groups()[group].state_parts;
  const std::int64_t before = (rank - node.first) / parts;  // of this node, with the same part
  const std::int64_t behind = (node.end - 1 - rank) / parts;
  return plan.cut(group, parts, rank % parts, before + 1 + behind, before);
}

std::vector<StateView> node_rows(const ShardPlan& plan, const Optimizer& optimizer,
                                 std::int64_t rank, const RankSpan& node) {
  std::vector<StateView> views;
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    append_rows(plan.groups()[group], node_part(plan, group, rank, node), optimizer, views);
  }
  return views;
}

std::vector<StateView> kept_rows(const ShardPlan& plan, const Optimizer& optimizer,
                                 std::int64_t rank) {
  std::vector<StateView> views;
  for (std::size_t index = 0; index < plan.groups().size(); ++index) {
    const ShardGroup& group = plan.groups()[index];
    const Part kept = plan.state_part(index, rank);
    append_rows(group, kept, optimizer, views);
    if (!plan.resident(index)) {
      continue;
    }
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const Parameter& parameter = group.parameters[i];
      const auto segment = std::find_if(kept.segments.begin(), kept.segments.end(),
                                        [i](const Segment& each) { return each.parameter == i; });
      const auto append = [&](std::int64_t first, std::int64_t end) {
        if (first < end) {
          views.push_back(
              row_view(weight_name(parameter.name), parameter, first, end - first, nullptr));
        }
      };
      if (segment == kept.segments.end()) {
        append(0, parameter.rows);
      } else {
        append(0, segment->first_row);
        append(segment->first_row + segment->rows, parameter.rows);
      }
    }
  }
  return views;
}

std::uint64_t node_bytes(const ShardPlan& plan, const Optimizer& optimizer, std::int64_t rank,
                         const RankSpan& node) {
  std::uint64_t size_bytes = 0;
  for (const StateView& view : node_rows(plan, optimizer, rank, node)) {
    size_bytes += view.size_bytes;
  }
  return size_bytes;
}

std::vector<StateView> node_views(const RankEngine& rank, const RankSpan& node) {
  std::multimap<std::string, StateView> kept;
  for (StateView& view : rank.state().views()) {
    kept.emplace(view.name, view);
  }
  auto views = node_rows(rank.plan(), rank.optimizer(), rank.options().rank, node);
  for (StateView& view : views) {
    const auto [begin, end] = kept.equal_range(view.name);
    const auto whole = std::find_if(begin, end, [&view](const auto& entry) {
      const StateView& rows = entry.second;
      return rows.first_row <= view.first_row &&
             view.first_row + view.rows <= rows.first_row + rows.rows;
    });
    TRAIN_CHECK(whole != end, "{} rows {} + {} are not kept", view.name, view.first_row, view.rows);
    TRAIN_CHECK(!whole->second.is_bf16, "{}: rows without masters", view.name);
    const auto row_bytes = view.size_bytes / static_cast<std::size_t>(view.rows);
    view.data = whole->second.data +
                static_cast<std::size_t>(view.first_row - whole->second.first_row) * row_bytes;
  }
  return views;
}

}  // namespace train::engine
