#include "checkpoint/models/merged_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.hpp"

namespace train::checkpoint {
namespace {

constexpr std::int64_t kMergedElements = std::int64_t{1} << 20;
constexpr std::size_t kSortedElements = 512;  // Elements that are sorted side by side.

/// Products of a block, a row for each model.
using Products = std::vector<std::array<double, kSortedElements>>;

/// Sorts each column, by exchanges of neighbours that need no branch.
void sort_columns(Products& products, std::size_t count) {
  for (std::size_t pass = 0; pass < products.size(); ++pass) {
    for (std::size_t row = pass % 2; row + 1 < products.size(); row += 2) {
      double* const low = products[row].data();
      double* const high = products[row + 1].data();
      for (std::size_t i = 0; i < count; ++i) {
        const double a = low[i];
        const double b = high[i];
        low[i] = b < a ? b : a;
        high[i] = b < a ? a : b;
      }
    }
  }
}

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
  Products products(models_.size());
  bool finite = true;
  for (std::size_t begin = 0; begin < out.size(); begin += kSortedElements) {
    const std::size_t count = std::min(kSortedElements, out.size() - begin);
    for (std::size_t m = 0; m < models_.size(); ++m) {
      for (std::size_t i = 0; i < count; ++i) {
        products[m][i] = models_[m].share * static_cast<double>(values[m][begin + i]);
      }
    }
    sort_columns(products, count);
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0.0;
      for (const auto& row : products) {
        sum += row[i];
      }
      out[begin + i] = static_cast<float>(sum);
      finite = finite && std::isfinite(out[begin + i]);
    }
  }
  return finite ? Status() : user_error(fmt::format("the merged {} is not finite", parameter.name));
}

}  // namespace train::checkpoint
