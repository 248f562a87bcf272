#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "engine/model/model.hpp"
#include "engine/rank/exec/exchanges.hpp"
#include "engine/rank/exec/lane_runner.hpp"
#include "engine/rank/exec/log_probs/document_scores.hpp"
#include "engine/rank/exec/log_probs/reference_log_probs.hpp"
#include "engine/rank/exec/log_probs/sampled_tokens.hpp"
#include "engine/rank/exec/rank_gradients.hpp"
#include "engine/rank/exec/totals/step_totals.hpp"
#include "engine/rank/exec/weight_updates.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/rank/state/gathered_weights.hpp"
#include "engine/rank/state/rank_state.hpp"
#include "engine/rank/state/reference_weights.hpp"

namespace train::engine {

/// All that one rank computes and keeps, below the actors: its plan, and the parts that do the
/// work. Parts borrow each other here and nowhere else. The plain loop over ranks (world_step.hpp)
/// and the actors drive the same parts in the same order; an actor has the part that it drives.
///
/// Threading: that of each part. Ownership: owns all device memory; must outlive the streams' work.
class RankEngine {
 public:
  using Options = RankOptions;

  /// REQUIRES: plan_of(options) is not an error, nor check_freeze().
  RankEngine(const kernels::KernelTable& kernels, const Options& options);
  RankEngine(const RankEngine&) = delete;
  RankEngine& operator=(const RankEngine&) = delete;

  // Plan of the rank's work.
  [[nodiscard]] const RankPlan& rank_plan() const { return rank_; }
  /// Name of the kernel set (kernels::KernelTable::kernel_set).
  [[nodiscard]] std::string kernel_set() const;
  [[nodiscard]] const kernels::Device& device() const { return rank_.device(); }
  [[nodiscard]] const Options& options() const { return rank_.options(); }
  [[nodiscard]] const ShardPlan& plan() const { return rank_.plan(); }
  [[nodiscard]] const BufferSchedule& schedule(const PassPlan& pass) const {
    return rank_.schedule(pass);
  }
  [[nodiscard]] const Optimizer& optimizer() const { return rank_.optimizer(); }
  [[nodiscard]] std::size_t unit_count() const { return rank_.unit_count(); }
  [[nodiscard]] const std::string& unit_name(std::size_t unit) const {
    return rank_.unit_name(unit);
  }

  // Parts that do the work.
  [[nodiscard]] LaneRunner& lanes() { return lanes_; }
  [[nodiscard]] const LaneRunner& lanes() const { return lanes_; }
  [[nodiscard]] GatheredWeights& gathered() { return gathered_; }
  [[nodiscard]] Exchanges& exchanges() { return exchanges_; }
  [[nodiscard]] RankGradients& gradients() { return gradients_; }
  [[nodiscard]] const RankGradients& gradients() const { return gradients_; }
  [[nodiscard]] StepTotals& totals() { return totals_; }
  [[nodiscard]] const StepTotals& totals() const { return totals_; }
  [[nodiscard]] const DocumentScores& scores() const { return scores_; }
  [[nodiscard]] const SampledTokens& sampled() const { return sampled_; }
  [[nodiscard]] WeightUpdates& updates() { return updates_; }
  [[nodiscard]] RankState& state() { return state_; }
  [[nodiscard]] const RankState& state() const { return state_; }
  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] ReferenceLogProbs& reference() { return reference_; }
  [[nodiscard]] const ReferenceLogProbs& reference() const { return reference_; }

  /// In stream order: StepTotals::step_result() with the optimizer's sums.
  [[nodiscard]] StepResult step_result(std::int64_t step) const;
  /// Allocated bytes by kind; equal to plan_memory() of the same options.
  [[nodiscard]] MemoryPlan allocated() const;

 private:
  RankPlan rank_;
  Model model_;
  RankState state_;
  ReferenceWeights reference_weights_;
  GatheredWeights gathered_;
  StepTotals totals_;
  RankGradients gradients_;
  WeightUpdates updates_;
  DocumentScores scores_;
  SampledTokens sampled_;
  ReferenceLogProbs reference_;
  LaneRunner lanes_;
  Exchanges exchanges_;
};

/// The engine on the device named by runtime.device. Errors: those of check_device(); failure if
/// there is not enough memory (names what did not fit).
[[nodiscard]] Result<std::unique_ptr<RankEngine>> make_rank_engine(const std::string& device,
                                                                   const RankOptions& options);

}  // namespace train::engine
