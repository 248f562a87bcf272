#include "actors/head/save_schedule.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace train::actors {

SaveSchedule::Take SaveSchedule::take(std::int64_t step) {
  TRAIN_CHECK(taken_.empty() || step > taken_.back(), "step {} after step {}", step,
              taken_.empty() ? -1 : taken_.back());
  Take take;
  take.write_now = !under_way_;
  if (take.write_now) {
    under_way_ = step;
  } else if (const auto before = waiting()) {
    take.replaces = *before;
  }
  taken_.push_back(step);
  forget_replaced();
  return take;
}

std::optional<std::int64_t> SaveSchedule::over(std::int64_t step) {
  TRAIN_CHECK(under_way_ == step, "the save of step {} is over, but was not under way", step);
  // What it replaced was kept in case that it was not good; it was.
  good_through(std::max(step, good_through_));
  std::erase(taken_, step);
  return grant_next();
}

void SaveSchedule::good_through(std::int64_t step) {
  good_through_ = std::max(step, good_through_);
  forget_replaced();
}

std::optional<std::int64_t> SaveSchedule::nonfinite_from(std::int64_t step) {
  std::erase_if(taken_, [step](std::int64_t taken) { return taken >= step; });
  return under_way_ && *under_way_ >= step ? grant_next() : std::nullopt;
}

std::optional<std::int64_t> SaveSchedule::waiting() const {
  return taken_.empty() || taken_.back() == under_way_ ? std::nullopt
                                                       : std::optional(taken_.back());
}

std::optional<std::int64_t> SaveSchedule::grant_next() {
  under_way_ = taken_.empty() ? std::nullopt : std::optional(taken_.back());
  return under_way_;
}

void SaveSchedule::forget_replaced() {
  // The newest good one stands for all before it but the one under way.
  const auto newest_good = std::find_if(
      taken_.rbegin(), taken_.rend(), [this](std::int64_t step) { return step <= good_through_; });
  if (newest_good == taken_.rend()) {
    return;
  }
  const std::int64_t newest = *newest_good;
  std::erase_if(taken_, [&](std::int64_t step) {
    const bool replaced = step < newest && step != under_way_;
    if (replaced) {
      skipped_.push_back(step);
    }
    return replaced;
  });
}

}  // namespace train::actors
