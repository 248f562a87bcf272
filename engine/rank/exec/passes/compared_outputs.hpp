#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "engine/command.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "engine/rank/plan/rank_plan.hpp"

namespace train::engine {

/// Units whose outputs a lane's pass compares with the frozen copy's, as its loss
/// (Compared::layer_outputs): the layers that its step trains. For LossUse::compared: units whose
/// outputs it keeps for that pass. None: the loss is the head's.
class ComparedOutputs {
 public:
  ComparedOutputs(const RankPlan& rank, const LaneWork& work);

  [[nodiscard]] std::size_t count() const { return units_.size(); }
  [[nodiscard]] std::optional<std::size_t> index_of(std::size_t unit) const {
    const auto found = std::find(units_.begin(), units_.end(), unit);
    return found == units_.end() ? std::nullopt
                                 : std::optional(static_cast<std::size_t>(found - units_.begin()));
  }
  [[nodiscard]] bool highest(std::size_t unit) const {
    return !units_.empty() && unit == units_.back();
  }
  /// The pass has no part of the unit: it loses nothing there, and nothing comes from there.
  [[nodiscard]] bool end_below(std::size_t unit) const {
    return !units_.empty() && unit > units_.back();
  }

  /// The most of them in any step of such options; 0: outputs are not compared.
  [[nodiscard]] static std::size_t most(const RankOptions& options);

 private:
  std::vector<std::size_t> units_;  // Ascending.
};

}  // namespace train::engine
