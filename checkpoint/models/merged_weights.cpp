#include "checkpoint/models/merged_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "checkpoint/models/ordered_sums.hpp"

namespace train::checkpoint {
namespace {

constexpr std::int64_t kMergedElements = std::int64_t{1} << 20;

}  // namespace

Status MergedWeights::read_rows(const engine::Parameter& parameter, std::int64_t first_row,
                                std::int64_t rows, std::span<float> out) const {
  const std::int64_t step =
      whole_ ? rows : std::max<std::int64_t>(1, kMergedElements / parameter.cols());
  for (std::int64_t done = 0; done < rows; done += step) {
    const std::int64_t count = std::min(step, rows - done);
    TRAIN_RETURN_IF_ERROR(merge(parameter, first_row + done, count,
                                out.subspan(static_cast<std::size_t>(done * parameter.cols()),
                                            static_cast<std::size_t>(count * parameter.cols()))));
  }
  return {};
}

Status MergedWeights::merge(const engine::Parameter& parameter, std::int64_t first_row,
                            std::int64_t rows, std::span<float> out) const {
  TRAIN_CHECK(!models_.empty());
  std::vector<std::vector<float>> values(models_.size(), std::vector<float>(out.size()));
  for (std::size_t m = 0; m < models_.size(); ++m) {
    TRAIN_RETURN_IF_ERROR(models_[m].weights->read_rows(parameter, first_row, rows, values[m]));
  }
  std::vector<WeightedValues> columns;
  for (std::size_t m = 0; m < models_.size(); ++m) {
    columns.push_back({values[m].data(), models_[m].share});
  }
  ordered_sums(columns, out);
  const bool finite = std::ranges::all_of(out, [](float value) { return std::isfinite(value); });
  return finite ? Status() : user_error(fmt::format("the merged {} is not finite", parameter.name));
}

}  // namespace train::checkpoint
