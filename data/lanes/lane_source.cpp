#include "data/lanes/lane_source.hpp"

namespace train::data {

std::function<engine::RowCount(std::int64_t)> LaneSource::row_count(
    const std::shared_ptr<const LaneSource>& data) {
  if (!data->count(0)) {
    return {};
  }
  return [data](std::int64_t step) { return data->count(step).value(); };
}

std::function<double(std::int64_t, std::size_t)> LaneSource::step_weight(
    const std::shared_ptr<const LaneSource>& data) {
  if (!data->count(0)) {
    return {};
  }
  return [data](std::int64_t step, std::size_t pass) {
    return data->count_pass(step, pass).value().weight;
  };
}

}  // namespace train::data
