#pragma once

#include <string>
#include <vector>

namespace train::cli {

/// An axis of a picture: from where to where it goes, and where it is marked.
struct AxisTicks {
  double low = 0.0, high = 0.0;
  std::vector<double> values = {};  ///< Increasing, from low to high. At least one.
};

/// Of values from `low` to `high`: marks at round numbers, about seven of them, and the axis as far
/// as the outer ones. Where all values are one, or differ by less than a double can be divided
/// into, that one is the only mark.
/// REQUIRES: finite, low <= high.
[[nodiscard]] AxisTicks axis_ticks(double low, double high);

/// The same for a logarithmic axis, which goes no further than the values. REQUIRES: 0 < low.
[[nodiscard]] AxisTicks log_axis_ticks(double low, double high);

/// What an axis says at its marks: as many digits as tell each from its neighbours and no more, so
/// that no two are alike, however little they differ; thousands and more with a decimal prefix
/// where few digits do. As axisLabels() of the board's page.
/// REQUIRES: finite and increasing.
[[nodiscard]] std::vector<std::string> axis_labels(const std::vector<double>& values);

}  // namespace train::cli
