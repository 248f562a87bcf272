#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/command.hpp"
#include "engine/objective/objective.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "engine/sharding/buffer_schedule.hpp"
#include "engine/sharding/shard_plan.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

/// What one rank is to compute and to keep, fixed when its engine is built: kernels, options, plan,
/// layout and the schedules of its commands. Every part of the engine borrows it.
///
/// Threading: immutable. Ownership: borrows the kernels.
class RankPlan {
 public:
  /// REQUIRES: plan_of(options) is not an error.
  RankPlan(const kernels::KernelTable& kernels, const RankOptions& options);
  RankPlan(const RankPlan&) = delete;
  RankPlan& operator=(const RankPlan&) = delete;

  [[nodiscard]] const kernels::KernelTable& kernels() const { return *kernels_; }
  [[nodiscard]] const kernels::Device& device() const { return *kernels_->device; }
  [[nodiscard]] const RankOptions& options() const { return options_; }
  [[nodiscard]] const ShardPlan& plan() const { return plan_; }
  [[nodiscard]] const RankLayout& layout() const { return layout_; }
  [[nodiscard]] const Optimizer& optimizer() const { return layout_.optimizer(); }
  [[nodiscard]] const Objective& objective() const { return *objective_; }
  /// Visits and reservations of a command. REQUIRES: neither snapshot nor stop.
  [[nodiscard]] const BufferSchedule& schedule(CommandKind kind) const;

  [[nodiscard]] std::int64_t rank() const { return options_.rank; }
  [[nodiscard]] std::int64_t ranks() const { return plan_.ranks(); }
  [[nodiscard]] std::size_t group_count() const { return plan_.groups().size(); }
  [[nodiscard]] const ShardGroup& group(std::size_t index) const { return plan_.groups()[index]; }
  [[nodiscard]] const GroupLayout& layout(std::size_t group) const { return layout_.group(group); }
  [[nodiscard]] std::size_t unit_count() const { return plan_.unit_count(); }
  [[nodiscard]] const std::string& unit_name(std::size_t unit) const;

  /// The lane's documents are scored; it has no loss.
  [[nodiscard]] bool scores_documents(const LaneWork& work) const {
    return work.kind == CommandKind::score;
  }
  /// Slots have positions: the objective's, or those of scored lanes alone.
  [[nodiscard]] bool has_positions() const {
    return objective_->columns().positions || options_.scored_lanes > 0;
  }

  [[nodiscard]] std::int64_t lane_tokens() const;
  [[nodiscard]] std::int64_t tokens_per_step() const;
  /// `sum` over the targets of step `step` (from 0) as the step's mean: over the sum of their
  /// weights; 0 where there is none. Of a step of two passes over the targets of the command's.
  [[nodiscard]] double step_mean(std::int64_t step, double sum,
                                 CommandKind kind = CommandKind::train_step) const;
  /// What lanes of the command compute, in training or forward alone.
  [[nodiscard]] Pass pass(CommandKind kind, std::int64_t step) const;
  /// What the mean of the pass's row losses is multiplied by in the loss of its step.
  [[nodiscard]] double loss_factor(const Pass& pass) const {
    return pass.coefficient * pass.head.unit(options_.model.vocab_size);
  }
  /// The unit of layer 0; the layers' units follow one another.
  [[nodiscard]] static constexpr std::size_t first_layer_unit() { return 1; }
  /// Step `step` trains the unit (Objective::schedule()).
  [[nodiscard]] bool trains(std::size_t unit, std::int64_t step) const;
  /// The unit of a parameter of a group.
  [[nodiscard]] std::size_t unit_of(std::size_t group, std::size_t parameter) const;
  /// Of step `step`, from 0.
  [[nodiscard]] double learning_rate_of(std::int64_t step) const;

 private:
  const kernels::KernelTable* kernels_;
  RankOptions options_;
  std::unique_ptr<const Objective> objective_;
  ShardPlan plan_;
  RankLayout layout_;
  BufferSchedule train_schedule_, eval_schedule_, nonfinite_schedule_, reference_schedule_;
  BufferSchedule gradient_schedule_, score_schedule_;
};

}  // namespace train::engine
