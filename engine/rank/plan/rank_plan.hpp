#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/command.hpp"
#include "engine/objective/objective.hpp"
#include "engine/rank/plan/pass_list.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "engine/sharding/buffer_schedule.hpp"
#include "engine/sharding/shard_plan.hpp"
#include "kernels/device/device.hpp"

namespace train::kernels {

struct KernelTable;

}  // namespace train::kernels

namespace train::engine {

/// Plan of one rank's work and memory, fixed when its engine is built: kernels, options, shard
/// plan, layout, passes and their schedules. Every part of the engine borrows it.
///
/// Threading: immutable. Ownership: borrows the kernels.
class RankPlan {
 public:
  /// REQUIRES: plan_of(options) is not an error.
  RankPlan(const kernels::KernelTable& kernels, const RankOptions& options);
  RankPlan(const RankPlan&) = delete;
  RankPlan& operator=(const RankPlan&) = delete;

  [[nodiscard]] const kernels::KernelTable& kernels() const { return *kernels_; }
  [[nodiscard]] const kernels::Device& device() const;
  [[nodiscard]] const RankOptions& options() const { return options_; }
  [[nodiscard]] const ShardPlan& plan() const { return plan_; }
  [[nodiscard]] const RankLayout& layout() const { return layout_; }
  [[nodiscard]] const Optimizer& optimizer() const { return layout_.optimizer(); }
  [[nodiscard]] const Objective& objective() const { return *objective_; }
  [[nodiscard]] const PassList& passes() const { return passes_; }
  /// Visits and reservations of one of passes().
  [[nodiscard]] const BufferSchedule& schedule(const PassPlan& pass) const {
    return schedules_.at(static_cast<std::size_t>(pass.index));
  }

  [[nodiscard]] std::int64_t rank() const { return options_.rank; }
  [[nodiscard]] std::int64_t ranks() const { return plan_.ranks(); }
  [[nodiscard]] std::size_t group_count() const { return plan_.groups().size(); }
  [[nodiscard]] const ShardGroup& group(std::size_t index) const { return plan_.groups()[index]; }
  [[nodiscard]] const GroupLayout& layout(std::size_t group) const { return layout_.group(group); }
  [[nodiscard]] std::size_t unit_count() const { return plan_.unit_count(); }
  [[nodiscard]] const std::string& unit_name(std::size_t unit) const;

  /// Slots have positions: the objective's, or those of scored lanes alone.
  [[nodiscard]] bool has_positions() const {
    return objective_->columns().positions || options_.scored_lanes > 0;
  }

  [[nodiscard]] std::int64_t lane_tokens() const;
  [[nodiscard]] std::int64_t tokens_per_step() const;
  /// Mean of step `step` (from 0): `sum` divided by the sum of the weights of the step's targets; 0
  /// if that is 0. If a step has several passes, of the targets of pass `number`.
  [[nodiscard]] double step_mean(std::int64_t step, double sum, std::size_t number = 0) const;
  /// Computation of the lanes of one of passes(), in training or forward alone, with the
  /// coefficients of the first step.
  [[nodiscard]] const Pass& pass(const PassPlan& pass) const {
    return computed_.at(static_cast<std::size_t>(pass.index));
  }
  /// Factor of the mean of the pass's row losses in the loss of step `step`.
  [[nodiscard]] double loss_factor(const PassPlan& pass, std::int64_t step) const;
  /// The unit of layer 0; the layers' units follow one another.
  [[nodiscard]] static constexpr std::size_t first_layer_unit() { return 1; }
  /// Step `step` trains the unit (Objective::schedule()).
  [[nodiscard]] bool trains(std::size_t unit, std::int64_t step) const;
  /// The unit of a parameter of a group.
  [[nodiscard]] std::size_t unit_of(std::size_t group, std::size_t parameter) const;
  /// Learning rate of step `step`, from 0.
  [[nodiscard]] double learning_rate_of(std::int64_t step) const;

 private:
  const kernels::KernelTable* kernels_;
  RankOptions options_;
  std::unique_ptr<const Objective> objective_;
  ShardPlan plan_;
  RankLayout layout_;
  PassList passes_;
  // By PassPlan::index.
  std::vector<BufferSchedule> schedules_;
  std::vector<Pass> computed_;
};

}  // namespace train::engine
