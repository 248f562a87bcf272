#include "engine/rank/shard_rows.hpp"

#include <fmt/format.h>

#include <utility>

namespace train::engine {

StateView row_view(std::string name, const Parameter& parameter, std::int64_t first_row,
                   std::int64_t rows, float* data) {
  return {.name = std::move(name),
          .global_shape = parameter.shape(),
          .first_row = first_row,
          .rows = rows,
          .data = reinterpret_cast<std::byte*>(data),
          .size_bytes = static_cast<std::size_t>(rows * parameter.cols) * sizeof(float)};
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
    for (const std::string_view state : optimizer.states(parameter)) {
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

std::uint64_t shard_bytes(const ShardPlan& plan, const Optimizer& optimizer, std::int64_t rank) {
  std::uint64_t size_bytes = 0;
  for (const StateView& view : shard_rows(plan, optimizer, rank)) {
    size_bytes += view.size_bytes;
  }
  return size_bytes;
}

}  // namespace train::engine
