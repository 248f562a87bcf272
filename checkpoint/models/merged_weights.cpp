#include "checkpoint/models/merged_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/check.hpp"
#include "base/process/core_shares.hpp"
#include "checkpoint/models/ordered_sums.hpp"

namespace train::checkpoint {
namespace {

constexpr std::int64_t kMergedElements = std::int64_t{1} << 20;

}  // namespace

Status MergedWeights::read_rows(const engine::Parameter& parameter, std::int64_t first_row,
                                std::int64_t rows, std::span<float> out) const {
  TRAIN_CHECK(!models_.empty());
  const std::int64_t step =
      whole_ ? rows : std::max<std::int64_t>(1, kMergedElements / parameter.cols());
  const auto piece = static_cast<std::size_t>(std::min(step, rows) * parameter.cols());
  // Pieces of one tensor share the memory, which would be the dearer part to ask for each time.
  const auto values = std::make_unique_for_overwrite<float[]>(models_.size() * piece);
  for (std::int64_t done = 0; done < rows; done += step) {
    const std::int64_t count = std::min(step, rows - done);
    const auto size = static_cast<std::size_t>(count * parameter.cols());
    const auto sums = out.subspan(static_cast<std::size_t>(done * parameter.cols()), size);
    // Each model has files of its own, so that several are read at once.
    std::vector<Status> read(models_.size());
    on_cores(models_.size(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t m = begin; m < end; ++m) {
        read[m] = models_[m].weights->read_rows(parameter, first_row + done, count,
                                                {values.get() + m * piece, size});
      }
    });
    for (const Status& one : read) {
      TRAIN_RETURN_IF_ERROR(one);
    }
    std::atomic<bool> finite{true};
    on_cores(size, [&](std::size_t begin, std::size_t end) {
      std::vector<WeightedValues> columns;
      for (std::size_t m = 0; m < models_.size(); ++m) {
        columns.push_back({values.get() + m * piece + begin, models_[m].share});
      }
      const auto share = sums.subspan(begin, end - begin);
      ordered_sums(columns, share);
      if (!std::ranges::all_of(share, [](float value) { return std::isfinite(value); })) {
        finite = false;
      }
    });
    if (!finite) {
      return user_error(fmt::format("the merged {} is not finite", parameter.name));
    }
  }
  return {};
}

}  // namespace train::checkpoint
