#define XXH_INLINE_ALL
#include "engine/rank/state/state_rows.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.hpp"

namespace train::engine {

StateView row_view(std::string name, const Parameter& parameter, std::int64_t first_row,
                   std::int64_t rows, float* data) {
  return {.name = std::move(name),
          .global_shape = parameter.shape,
          .first_row = first_row,
          .rows = rows,
          .data = reinterpret_cast<std::byte*>(data),
          .size_bytes = static_cast<std::size_t>(rows * parameter.cols()) * sizeof(float)};
}

std::vector<std::string_view> kept_states(const Optimizer& optimizer, const Parameter& parameter) {
  if (parameter.frozen) {
    return {};
  }
  const auto& states = optimizer.states(parameter);
  return {states.begin(), states.end()};
}

void append_rows(const ShardGroup& group, const Part& part, const Optimizer& optimizer,
                 std::vector<StateView>& views) {
  for (const Segment& segment : part.segments) {
    const Parameter& parameter = group.parameters[segment.parameter];
    const auto append = [&](std::string name) {
      views.push_back(
          row_view(std::move(name), parameter, segment.first_row, segment.rows, nullptr));
    };
    append(weight_name(parameter.name));
    for (const std::string_view state : kept_states(optimizer, parameter)) {
      append(fmt::format("optimizer.{}.{}", state, parameter.name));
    }
  }
}

std::vector<StateView> shard_rows(const ShardPlan& plan, const Optimizer& optimizer,
                                  std::int64_t rank) {
  std::vector<StateView> views;
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    append_rows(plan.groups()[group], plan.reduce_part(group, rank), optimizer, views);
  }
  return views;
}

namespace {

/// Bytes of the rows that append_rows() appends.
std::uint64_t bytes_of_rows(const ShardGroup& group, const Part& part, const Optimizer& optimizer) {
  std::uint64_t size_bytes = 0;
  for (const Segment& segment : part.segments) {
    const Parameter& parameter = group.parameters[segment.parameter];
    const std::size_t states = parameter.frozen ? 0 : optimizer.states(parameter).size();
    size_bytes += (1 + states) * static_cast<std::uint64_t>(segment.count) * sizeof(float);
  }
  return size_bytes;
}

}  // namespace

std::uint64_t shard_bytes(const ShardPlan& plan, const Optimizer& optimizer, std::int64_t rank) {
  std::uint64_t size_bytes = 0;
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    size_bytes += bytes_of_rows(plan.groups()[group], plan.reduce_part(group, rank), optimizer);
  }
  return size_bytes;
}

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
        append(0, parameter.rows());
      } else {
        append(0, segment->first_row);
        append(segment->first_row + segment->rows, parameter.rows());
      }
    }
  }
  return views;
}

std::uint64_t node_bytes(const ShardPlan& plan, const Optimizer& optimizer, std::int64_t rank,
                         const RankSpan& node) {
  std::uint64_t size_bytes = 0;
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    size_bytes +=
        bytes_of_rows(plan.groups()[group], node_part(plan, group, rank, node), optimizer);
  }
  return size_bytes;
}

std::vector<StateView> node_views(const RankPlan& rank, const RankState& state,
                                  const RankSpan& node) {
  std::set<std::string> frozen;
  for (const ShardGroup& group : rank.plan().groups()) {
    for (const Parameter& parameter : group.parameters) {
      if (parameter.frozen) {
        frozen.insert(weight_name(parameter.name));
      }
    }
  }
  std::multimap<std::string, StateView> kept;
  for (StateView& view : state.views()) {
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
    TRAIN_CHECK(!whole->second.is_bf16 || frozen.count(view.name) > 0, "{}: rows without masters",
                view.name);
    view.is_bf16 = whole->second.is_bf16;
    const auto row_bytes =
        view.size_bytes / static_cast<std::size_t>(view.rows) / (view.is_bf16 ? 2 : 1);
    view.data = whole->second.data +
                static_cast<std::size_t>(view.first_row - whole->second.first_row) * row_bytes;
  }
  return views;
}

namespace {

std::uint64_t rows_digest(std::string_view name, std::int64_t first_row, std::int64_t rows,
                          const std::byte* row, std::size_t row_bytes) {
  const std::uint64_t name_hash = XXH3_64bits(name.data(), name.size());
  std::uint64_t digest = 0;
  for (std::int64_t r = 0; r < rows; ++r, row += row_bytes) {
    const std::uint64_t seed = XXH3_64bits_withSeed(&name_hash, sizeof(name_hash),
                                                    static_cast<std::uint64_t>(first_row + r));
    digest += XXH3_64bits_withSeed(row, row_bytes, seed);
  }
  return digest;
}

/// Weights go by their parameter's name.
std::uint64_t view_digest(const StateView& view) {
  std::string_view name = view.name;
  name.remove_prefix(is_weight(name) ? kWeights.size() : 0);
  return view.rows == 0 ? 0
                        : rows_digest(name, view.first_row, view.rows, view.data,
                                      view.size_bytes / static_cast<std::size_t>(view.rows));
}

}  // namespace

std::uint64_t weights_digest(std::span<const StateView> state) {
  std::uint64_t digest = 0;
  for (const StateView& view : state) {
    digest += is_weight(view.name) ? view_digest(view) : 0;
  }
  return digest;
}

std::vector<std::string> tensor_names(std::span<const StateView> state) {
  std::vector<std::string> names;
  for (const StateView& view : state) {
    names.push_back(view.name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::uint64_t> tensor_digests(std::span<const StateView> state,
                                          std::span<const std::string> names) {
  std::vector<std::uint64_t> digests(names.size());
  for (const StateView& view : state) {
    const auto name = std::lower_bound(names.begin(), names.end(), view.name);
    TRAIN_CHECK(name != names.end() && *name == view.name, "{} is not among the names", view.name);
    digests[static_cast<std::size_t>(name - names.begin())] += view_digest(view);
  }
  return digests;
}

std::uint64_t weights_digest(std::span<const std::uint64_t> digests,
                             std::span<const std::string> names) {
  TRAIN_CHECK(digests.size() == names.size(), "{} digests of {} tensors", digests.size(),
              names.size());
  std::uint64_t digest = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    digest += is_weight(names[i]) ? digests[i] : 0;
  }
  return digest;
}

}  // namespace train::engine
