#include "run/program/early_stop.hpp"

#include <fmt/format.h>

#include <cmath>

namespace train::run {

void EarlyStop::hear(std::int64_t step, double value) {
  if (step <= newest_step_) {
    return;
  }
  newest_step_ = step;
  const bool better =
      !std::isnan(value) && (!best_ || (less_is_better() ? value < *best_ : value > *best_));
  if (better) {
    best_ = value;
    best_step_ = step;
    waited_ = 0;
  } else {
    ++waited_;
  }
}

std::string EarlyStop::text() const {
  return best_ ? fmt::format("{} is not {} {:.6g} of step {} in {} evaluations", options_.metric,
                             less_is_better() ? "below" : "above", *best_, best_step_, waited_)
               : fmt::format("{} is no number in {} evaluations", options_.metric, waited_);
}

}  // namespace train::run
