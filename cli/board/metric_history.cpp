#include "cli/board/metric_history.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace train::cli {

void MetricBin::add(double value, double summand) {
  const auto single = static_cast<float>(value);
  least = count == 0 ? single : std::min(least, single);
  most = count == 0 ? single : std::max(most, single);
  sum += summand;
  ++count;
}

void MetricBin::add(const MetricBin& later) {
  if (later.count == 0) {
    return;
  }
  least = count == 0 ? later.least : std::min(least, later.least);
  most = count == 0 ? later.most : std::max(most, later.most);
  sum += later.sum;
  count += later.count;
}

std::optional<std::size_t> MetricHistory::column(std::string_view name) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) {
    return found->second;
  }
  if (columns_.size() == kMostColumns || name.size() > kLongestName) {
    return std::nullopt;
  }
  by_name_.emplace(name, columns_.size());
  columns_.push_back({.name = std::string(name), .rate = name.ends_with("tokens_per_second")});
  return columns_.size() - 1;
}

const MetricHistory::Column* MetricHistory::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &columns_[found->second];
}

void MetricHistory::add(std::size_t column, std::int64_t step, double value) {
  if (step < first_step_) {
    return;
  }
  if (!(std::abs(value) <= std::numeric_limits<float>::max())) {  // True for NaN, too.
    ++lost_;
    return;
  }
  const std::int64_t at = step - first_step_;
  while (at / width_ >= static_cast<std::int64_t>(kMostBins)) {
    widen();
  }
  Column& into = columns_[column];
  const auto bin = static_cast<std::size_t>(at / width_);
  if (into.bins.size() <= bin) {
    into.bins.resize(bin + 1);
  }
  into.bins[bin].add(value, into.summand(value));
  if (step >= into.newest_step) {
    into.newest = value;
    into.newest_step = step;
  }
  last_step_ = std::max(last_step_, step);
}

void MetricHistory::widen() {
  width_ *= 2;
  for (Column& column : columns_) {
    std::vector<MetricBin>& bins = column.bins;
    for (std::size_t bin = 0; bin < bins.size(); ++bin) {
      if (bin % 2 == 0) {
        bins[bin / 2] = bins[bin];
      } else {
        bins[bin / 2].add(bins[bin]);
      }
    }
    bins.resize((bins.size() + 1) / 2);
  }
}

}  // namespace train::cli
