#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace train::run {

/// Decision to end a run whose evaluations have stopped improving: after `patience` of them in a
/// row that are not better than the best before. A pure function of the values, which all ranks
/// have alike, in the order of their steps. A plain class.
class EarlyStop {
 public:
  struct Options {
    std::string metric = "val_loss";  ///< "val_loss": less is better; "val_accuracy": more.
    std::int64_t patience = 0;        ///< 0: never stop.
  };

  EarlyStop() = default;  ///< Never stops.
  explicit EarlyStop(Options options) : options_(std::move(options)) {}

  [[nodiscard]] bool used() const { return options_.patience > 0; }
  /// Takes the value of the next evaluation, after `step` steps; NaN is not better than any. One of
  /// a step that is not after the last one's is known already, and ignored.
  void hear(std::int64_t step, double value);
  /// True if the run is to end after the newest evaluation.
  [[nodiscard]] bool over() const { return used() && waited_ >= options_.patience; }
  /// "val_loss is not below 2.31 of step 40 for 3 evaluations". REQUIRES: over().
  [[nodiscard]] std::string text() const;
  [[nodiscard]] const std::string& metric() const { return options_.metric; }

 private:
  [[nodiscard]] bool less_is_better() const { return options_.metric == "val_loss"; }

  Options options_;
  std::optional<double> best_;
  std::int64_t best_step_ = 0;
  std::int64_t newest_step_ = -1;
  std::int64_t waited_ = 0;  // Evaluations since the best.
};

}  // namespace train::run
