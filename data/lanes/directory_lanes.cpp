#include "data/lanes/directory_lanes.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace train::data {
namespace {

/// Elements of row `row` of a lane's column; empty if the column does not exist.
template <class T>
std::span<T> row_of(std::span<T> column, std::uint64_t row, std::uint64_t rows) {
  const std::size_t length = column.size() / static_cast<std::size_t>(rows);
  return column.subspan(static_cast<std::size_t>(row) * length, length);
}

}  // namespace

RowColumns columns_of_row(const engine::LaneSlot& slot, std::uint64_t row, std::uint64_t rows,
                          bool prompt_targets) {
  return {.tokens = row_of(slot.tokens, row, rows),
          .targets = row_of(slot.targets, row, rows),
          .positions = row_of(slot.positions, row, rows),
          .weights = row_of(slot.weights, row, rows),
          .prompt_targets = prompt_targets};
}

void fill_padding(const RowColumns& columns) {
  std::fill(columns.tokens.begin(), columns.tokens.end(), 0);
  std::fill(columns.targets.begin(), columns.targets.end(), -1);
  std::iota(columns.positions.begin(), columns.positions.end(), 0);
  std::fill(columns.weights.begin(), columns.weights.end(), 0.0F);
}

LaneOrder lane_order(const configs::RunConfig& config, std::uint64_t sequences) {
  return {.seed = config.run.seed,
          .sequences = sequences,
          .lanes = static_cast<std::uint64_t>(config.batch.lanes),
          .micro_batch = static_cast<std::uint64_t>(config.batch.micro_batch)};
}

}  // namespace train::data
