#include "engine/optimizer/lr_schedule.hpp"

#include <cmath>
#include <numbers>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"

namespace train::engine {
namespace {

/// From `from` (x = 0) to `to` (x = 1).
using Anneal = double (*)(double from, double to, double x);

double cosine(double from, double to, double x) {
  return to + (from - to) / 2.0 * (1.0 + fixed::cos(std::numbers::pi * x));
}

double line(double from, double to, double x) { return (to - from) * x + from; }

/// torch's OneCycleLR: the way up and the way down have one shape; the peak is reached at update
/// warmup - 1, the floor at the last update. What torch gives at step `total_steps`, the one it
/// still answers after the last update, lies past the floor on the same curve.
double one_cycle(const configs::ScheduleSection& schedule, Anneal anneal, double peak,
                 std::int64_t step, std::int64_t total_steps) {
  const double initial = peak / schedule.div_factor;
  const double floor = initial / schedule.final_div_factor;
  if (step > total_steps) {
    return floor;
  }
  const double total = static_cast<double>(total_steps);
  // Multiplied out again in the order of the reference, because s <= peak_at asks for every bit.
  const double peak_at = static_cast<double>(schedule.warmup_steps) / total * total - 1.0;
  const double s = static_cast<double>(step);
  if (s <= peak_at) {
    // A warm-up of one update divides zero by zero in the reference; it starts at the peak here.
    return peak_at > 0.0 ? anneal(initial, peak, s / peak_at) : peak;
  }
  const double falling = total - 1.0 - peak_at;
  // If the warm-up is the whole run there is no decay: the reference rejects that.
  return falling > 0.0 ? anneal(peak, floor, (s - peak_at) / falling) : floor;
}

/// Linear from peak / div_factor at update 0 towards the peak at update warmup_steps; a share of
/// the peak.
double linear_warmup(const configs::ScheduleSection& schedule, std::int64_t step) {
  const double x = static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  return x + (1.0 - x) / schedule.div_factor;
}

double cosine_to_constant(const configs::ScheduleSection& schedule, std::int64_t step,
                          std::int64_t total_steps) {
  const double floor = 1.0 / schedule.div_factor / schedule.final_div_factor;
  const std::int64_t falling_until = total_steps - schedule.constant_tail_steps;
  if (step >= falling_until) {
    return floor;
  }
  const double x = static_cast<double>(step - schedule.warmup_steps) /
                   static_cast<double>(falling_until - schedule.warmup_steps);
  return cosine(1.0, floor, x);
}

/// Share of the peak when `x` (0 to 1) of the decay is over.
double decayed(const std::string& shape, double floor, double x) {
  if (shape == "exp") {
    return fixed::pow(floor, x);
  }
  if (shape == "cosine") {
    return cosine(1.0, floor, x);
  }
  if (shape == "mirror_cosine") {  // The cosine's mirror image in the straight line.
    return 2.0 * line(1.0, floor, x) - cosine(1.0, floor, x);
  }
  if (shape == "square") {
    return line(1.0, floor, x * x);
  }
  if (shape == "sqrt") {
    return line(1.0, floor, std::sqrt(x));
  }
  TRAIN_CHECK(shape == "linear", "decay shape \"{}\"", shape);
  return line(1.0, floor, x);
}

double stable_then_decay(const configs::ScheduleSection& schedule, std::int64_t step,
                         std::int64_t total_steps) {
  const std::int64_t decay_steps = configs::wsd_decay_steps(schedule, total_steps);
  const std::int64_t begun = step - (total_steps - decay_steps);
  if (step >= total_steps) {
    return schedule.decay_floor;
  }
  return begun < 0 ? 1.0
                   : decayed(schedule.decay_shape, schedule.decay_floor,
                             static_cast<double>(begun) / static_cast<double>(decay_steps));
}

}  // namespace

double learning_rate(const configs::ScheduleSection& schedule, double peak, std::int64_t step,
                     std::int64_t total_steps) {
  TRAIN_CHECK(step >= 0 && total_steps > 0, "step {} of {}", step, total_steps);
  if (schedule.name == "cos" || schedule.name == "linear") {
    return one_cycle(schedule, schedule.name == "cos" ? cosine : line, peak, step, total_steps);
  }
  if (step < schedule.warmup_steps) {
    return peak * linear_warmup(schedule, step);
  }
  if (schedule.name == "cos_inf") {
    return peak * cosine_to_constant(schedule, step, total_steps);
  }
  if (schedule.name == "wsd") {
    return peak * stable_then_decay(schedule, step, total_steps);
  }
  TRAIN_CHECK(schedule.name == "constant", "schedule \"{}\"", schedule.name);
  return peak;
}

}  // namespace train::engine
