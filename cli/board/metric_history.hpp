#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace train::cli {

/// What a quantity was in some steps that follow each other.
struct MetricBin {
  float least = 0.0F;
  float most = 0.0F;
  double sum = 0.0;         ///< Of what the quantity's mean is taken of (MetricHistory::Column).
  std::uint32_t count = 0;  ///< Values; 0: none, and the rest says nothing.

  void add(double value, double summand);
  void add(const MetricBin& later);
};

/// Quantities over the steps of a run in bounded memory, however long it is: bins of equally many
/// steps, two of which become one when they are too many. Least and most of a bin are kept, so that
/// no peak is lost. Values that a float does not hold (NaN, 1e300) count in `lost` alone.
///
/// Threading: not thread-safe.
class MetricHistory {
 public:
  static constexpr std::size_t kMostBins = 2048;
  static constexpr std::size_t kMostColumns = 256;  ///< Further ones are not kept,
  static constexpr std::size_t kLongestName = 256;  ///< nor those with longer names.

  struct Column {
    std::string name;
    /// Bin i has the steps first_step() + i * width() up to those of the next. Trailing ones may be
    /// missing.
    std::vector<MetricBin> bins = {};
    double newest = std::numeric_limits<double>::quiet_NaN();
    std::int64_t newest_step = -1;
    /// Tokens over time, equally many in each value: the mean is all tokens over all the time.
    bool rate = false;

    [[nodiscard]] double summand(double value) const { return rate ? 1.0 / value : value; }
    /// REQUIRES: the bin has values.
    [[nodiscard]] double mean(const MetricBin& bin) const {
      const auto count = static_cast<double>(bin.count);
      return rate ? count / bin.sum : bin.sum / count;
    }
  };

  /// Of steps from `first_step` on; those before are ignored.
  explicit MetricHistory(std::int64_t first_step = 0) : first_step_(first_step) {}

  /// Where the values of a quantity go; none: it is not kept.
  [[nodiscard]] std::optional<std::size_t> column(std::string_view name);
  /// Steps in any order.
  void add(std::size_t column, std::int64_t step, double value);

  /// In the order in which they came.
  [[nodiscard]] const std::vector<Column>& columns() const { return columns_; }
  [[nodiscard]] const Column* find(std::string_view name) const;
  [[nodiscard]] std::int64_t first_step() const { return first_step_; }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t last_step() const { return last_step_; }  ///< -1: none.
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  void widen();

  std::vector<Column> columns_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::int64_t first_step_;
  std::int64_t width_ = 1;
  std::int64_t last_step_ = -1;
  std::uint64_t lost_ = 0;
};

}  // namespace train::cli
