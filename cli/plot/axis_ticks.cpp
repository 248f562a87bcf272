#include "cli/plot/axis_ticks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"

namespace train::cli {
namespace {

constexpr double kIntervals = 7.0;
/// Ticks between closer values are not representable.
constexpr double kLeastShare = 1e-12;
constexpr double kLeastRange = 1e-290;
/// Allowed rounding error of a label, as a fraction of the distance to its neighbour.
constexpr double kError = 0.05;
/// Labels with more digits use a prefix.
constexpr int kPrefixDigits = 4;

/// 1, 2 or 5 times a power of ten.
struct Step {
  double mantissa = 1.0;
  int exponent = 0;

  /// `count` steps. Division by a power of ten that a double holds exactly is rounded once: the
  /// number as a person would write it.
  [[nodiscard]] double times(double count) const {
    const double power = fixed::pow(10.0, std::abs(exponent));
    return exponent < 0 ? count * mantissa / power : count * mantissa * power;
  }
};

/// Smallest round step that is at least `least`.
Step round_step(double least) {
  const auto exponent = static_cast<int>(std::floor(fixed::log10(least)));
  for (const double mantissa : {1.0, 2.0, 5.0}) {
    if (const Step step{mantissa, exponent}; step.times(1.0) >= least) {
      return step;
    }
  }
  return {1.0, exponent + 1};
}

/// Multiples of the step in the range.
std::vector<double> multiples(const Step& step, double low, double high) {
  std::vector<double> values;
  const auto first = static_cast<std::int64_t>(std::ceil(low / step.times(1.0) - kError));
  const auto last = static_cast<std::int64_t>(std::floor(high / step.times(1.0) + kError));
  for (std::int64_t each = first; each <= last; ++each) {
    values.push_back(step.times(static_cast<double>(each)));
  }
  return values;
}

bool is_one_value(double low, double high) {
  const double size = std::max(std::abs(low), std::abs(high));
  return !(high / size - low / size > kLeastShare && high - low > kLeastRange);
}

AxisTicks one_tick(double value) {
  const double around =
      std::max(0.05 * std::abs(value), value == 0.0 ? 1.0 : std::numeric_limits<double>::min());
  return {.low = value - around, .high = value + around, .values = {value}};
}

/// Format of an axis's numbers.
struct Form {
  double unit = 1.0;
  const char* prefix = "";
  bool exponent = false;
};

Form form_of(double largest, bool with_prefix) {
  static constexpr std::array<std::pair<double, const char*>, 4> kPrefixes = {
      {{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}}};
  if (largest < 1e-3 || largest >= 1e15) {
    return {.exponent = true};
  }
  for (const auto& [unit, prefix] : kPrefixes) {
    if (with_prefix && largest >= 1e4 && largest >= unit) {
      return {.unit = unit, .prefix = prefix};
    }
  }
  return {};
}

/// Number with so many significant digits, without trailing zeros.
std::string label_of(double value, const Form& form, int digits) {
  if (value == 0.0) {
    return "0";
  }
  const double rounded =
      std::strtod(fmt::format("{:.{}e}", value / form.unit, digits - 1).c_str(), nullptr);
  if (!form.exponent) {
    return fmt::format("{}{}", rounded, form.prefix);
  }
  const std::string text = fmt::format("{:.{}e}", rounded, digits - 1);
  const std::size_t at = text.find('e');
  std::string mantissa = text.substr(0, at);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.resize(mantissa.find_last_not_of('0') + 1);
    mantissa.resize(mantissa.back() == '.' ? mantissa.size() - 1 : mantissa.size());
  }
  return mantissa + text.substr(at);
}

/// Distance of a value to its nearer neighbour.
double gap_at(const std::vector<double>& values, std::size_t at) {
  double gap = std::numeric_limits<double>::infinity();
  if (at > 0) {
    gap = std::min(gap, values[at] - values[at - 1]);
  }
  if (at + 1 < values.size()) {
    gap = std::min(gap, values[at + 1] - values[at]);
  }
  return values.size() == 1 ? std::abs(values[at]) * 1e-3 : gap;
}

/// nullopt: this number of digits is too small.
std::optional<std::vector<std::string>> labels_with(const std::vector<double>& values,
                                                    const Form& form, int digits) {
  std::vector<std::string> labels;
  for (std::size_t at = 0; at < values.size(); ++at) {
    const double gap = gap_at(values, at);
    // A rounding residue near 0 is shown as 0.
    const double value = std::abs(values[at]) < 1e-6 * gap ? 0.0 : values[at];
    labels.push_back(label_of(value, form, digits));
    const double said = std::strtod(labels.back().c_str(), nullptr) * form.unit;
    if (!(std::abs(said - value) <= kError * gap)) {
      return std::nullopt;
    }
  }
  const std::set<std::string> different(labels.begin(), labels.end());
  return different.size() == labels.size() ? std::optional(labels) : std::nullopt;
}

}  // namespace

AxisTicks axis_ticks(double low, double high) {
  TRAIN_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, "no range of an axis");
  if (is_one_value(low, high)) {
    return one_tick(low);
  }
  const Step step = round_step(high / kIntervals - low / kIntervals);
  const double size = step.times(1.0);
  AxisTicks ticks{.low = std::min(low, step.times(std::floor(low / size))),
                  .high = std::max(high, step.times(std::ceil(high / size)))};
  ticks.values = multiples(step, ticks.low, ticks.high);
  return ticks;
}

AxisTicks log_axis_ticks(double low, double high) {
  TRAIN_CHECK(low > 0.0, "a logarithmic axis of {}", low);
  if (is_one_value(low, high)) {
    return one_tick(low);
  }
  AxisTicks ticks{.low = low, .high = high};
  const auto first = static_cast<int>(std::floor(fixed::log10(low)));
  const auto last = static_cast<int>(std::ceil(fixed::log10(high)));
  const int stride = std::max(1, (last - first) / static_cast<int>(kIntervals));
  for (int power = first; power <= last; power += stride) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * fixed::pow(10.0, power);
      if (value >= low && value <= high && (factor == 1.0 || last - first <= 3)) {
        ticks.values.push_back(value);
      }
    }
  }
  if (ticks.values.size() < 3) {  // Less than a decade: use linear ticks.
    ticks.values = multiples(round_step(high / kIntervals - low / kIntervals), low, high);
  }
  return ticks;
}

std::vector<std::string> axis_labels(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) {
    largest = std::max(largest, std::abs(value));
  }
  for (int digits = 1; digits <= std::numeric_limits<double>::max_digits10; ++digits) {
    const Form form = form_of(largest, digits <= kPrefixDigits);
    if (auto labels = labels_with(values, form, digits)) {
      return *labels;
    }
  }
  std::vector<std::string> exact;  // All digits of the doubles.
  exact.reserve(values.size());
  for (const double value : values) {
    exact.push_back(fmt::format("{}", value));
  }
  return exact;
}

}  // namespace train::cli
