#include "engine/optimizer/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/check.hpp"

namespace train::engine {
namespace {

/// Half a cosine from `from` (x = 0) to `to` (x = 1).
double cosine(double from, double to, double x) {
  return to + (from - to) / 2.0 * (1.0 + std::cos(std::numbers::pi * x));
}

/// torch's OneCycleLR with cosine annealing: both the way up and the way down are half cosines;
/// the peak is reached at update warmup - 1, the floor at the last update.
double one_cycle(const configs::ScheduleSection& schedule, double peak, std::int64_t step,
                 std::int64_t total_steps) {
  const double initial = peak / schedule.div_factor;
  const double floor = initial / schedule.final_div_factor;
  const double total = static_cast<double>(total_steps);
  const double peak_at = static_cast<double>(schedule.warmup_steps) / total * total - 1.0;
  const double s = static_cast<double>(std::min(step, total_steps - 1));
  if (s <= peak_at) {
    // A warm-up of one update divides zero by zero in the reference; it starts at the peak here.
    return peak_at > 0.0 ? cosine(initial, peak, s / peak_at) : peak;
  }
  return cosine(peak, floor, (s - peak_at) / (total - 1.0 - peak_at));
}

/// Linear from peak / div_factor at update 0 towards the peak at update warmup_steps.
double linear_warmup(const configs::ScheduleSection& schedule, double peak, std::int64_t step) {
  const double x = static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  return peak * (x + (1.0 - x) / schedule.div_factor);
}

double cosine_to_constant(const configs::ScheduleSection& schedule, double peak, std::int64_t step,
                          std::int64_t total_steps) {
  const double floor = 1.0 / (schedule.div_factor * schedule.final_div_factor);
  const std::int64_t falling_until = total_steps - schedule.constant_tail_steps;
  if (step < schedule.warmup_steps) {
    return linear_warmup(schedule, peak, step);
  }
  if (step >= falling_until) {
    return peak * floor;
  }
  const double x = static_cast<double>(step - schedule.warmup_steps) /
                   static_cast<double>(falling_until - schedule.warmup_steps);
  return peak * cosine(1.0, floor, x);
}

}  // namespace

double learning_rate(const configs::ScheduleSection& schedule, double peak, std::int64_t step,
                     std::int64_t total_steps) {
  TRAIN_CHECK(step >= 0 && total_steps > 0, "step {} of {}", step, total_steps);
  if (schedule.name == "cos") {
    return one_cycle(schedule, peak, step, total_steps);
  }
  if (schedule.name == "cos_inf") {
    return cosine_to_constant(schedule, peak, step, total_steps);
  }
  TRAIN_CHECK(schedule.name == "constant", "schedule \"{}\"", schedule.name);
  return step < schedule.warmup_steps ? linear_warmup(schedule, peak, step) : peak;
}

}  // namespace train::engine
