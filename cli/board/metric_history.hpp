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

/// Summary of a quantity over consecutive steps.
struct MetricBin {
  float least = 0.0F;
  float most = 0.0F;
  double sum = 0.0;         ///< Sum of the values that are averaged (see MetricHistory::Column).
  std::uint32_t count = 0;  ///< Number of values; if 0, the other members are meaningless.

  void add(double value, double summand);
  void add(const MetricBin& later);
};

/// History of quantities over a run's steps in bounded memory, however long the run: bins of
/// equally many steps, merged in pairs when there are too many. Bins keep minimum and maximum, so
/// no peak is lost. Values that a float cannot hold (NaN, 1e300) are only counted in `lost`.
///
/// Threading: not thread-safe.
class MetricHistory {
 public:
  static constexpr std::size_t kMostBins = 2048;
  static constexpr std::size_t kMostColumns = 256;  ///< Further ones are dropped,
  static constexpr std::size_t kLongestName = 256;  ///< as are those with longer names.

  struct Column {
    std::string name;
    /// Bin i covers the steps from first_step() + i * width() up to the next bin. Trailing bins may
    /// be missing.
    std::vector<MetricBin> bins = {};
    double newest = std::numeric_limits<double>::quiet_NaN();
    std::int64_t newest_step = -1;
    /// Rate: tokens over time, with equally many tokens in each value; its mean is total tokens
    /// over total time.
    bool rate = false;

    [[nodiscard]] double summand(double value) const { return rate ? 1.0 / value : value; }
    /// REQUIRES: the bin has values.
    [[nodiscard]] double mean(const MetricBin& bin) const {
      const auto count = static_cast<double>(bin.count);
      return rate ? count / bin.sum : bin.sum / count;
    }
  };

  /// Ignores steps before `first_step`.
  explicit MetricHistory(std::int64_t first_step = 0) : first_step_(first_step) {}

  /// Column of a quantity; nullopt: it is dropped.
  [[nodiscard]] std::optional<std::size_t> column(std::string_view name);
  /// Adds a value; steps may come in any order.
  void add(std::size_t column, std::int64_t step, double value);

  /// In order of first appearance.
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
