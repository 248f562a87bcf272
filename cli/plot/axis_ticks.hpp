#pragma once

#include <string>
#include <vector>

namespace train::cli {

/// Range and tick marks of a plot's axis.
struct AxisTicks {
  double low = 0.0, high = 0.0;
  std::vector<double> values = {};  ///< Increasing, from low to high. At least one.
};

/// Ticks for values from `low` to `high`: about seven round numbers, with the range extended to the
/// outer ones. If all values are equal, or too close for doubles in between, that value is the only
/// tick. REQUIRES: finite, low <= high.
[[nodiscard]] AxisTicks axis_ticks(double low, double high);

/// Ticks of a logarithmic axis, whose range is not extended. REQUIRES: 0 < low.
[[nodiscard]] AxisTicks log_axis_ticks(double low, double high);

/// Labels of the ticks: just as many digits as distinguish each from its neighbours, so that no two
/// labels are equal, however close; thousands and above with a decimal prefix if few digits
/// suffice. Same as axisLabels() of the board's page. REQUIRES: finite and increasing.
[[nodiscard]] std::vector<std::string> axis_labels(const std::vector<double>& values);

}  // namespace train::cli
