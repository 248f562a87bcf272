#include "engine/rank/plan/rank_plan.hpp"

#include <utility>

#include "base/check.hpp"
#include "engine/objective/registry.hpp"
#include "engine/optimizer/lr_schedule.hpp"
#include "kernels/backend.hpp"

namespace train::engine {
namespace {

RankOptions on_device(const kernels::KernelTable& kernels, RankOptions options) {
  options.knows_bf16 = kernels.device->knows_bf16;
  options.model = trained_model(options);
  return options;
}

ShardPlan plan_or_check(const RankOptions& options) {
  Result<ShardPlan> plan = plan_of(options);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);
  TRAIN_CHECK(options.rank >= 0 && options.rank < plan->ranks(), "rank {} of {}", options.rank,
              plan->ranks());
  return *std::move(plan);
}

}  // namespace

RankPlan::RankPlan(const kernels::KernelTable& kernels, const RankOptions& options)
    : kernels_(&kernels),
      options_(on_device(kernels, options)),
      objective_(make_objective(options_.objective)),
      plan_(plan_or_check(options_)),
      layout_(plan_, options_),
      passes_(pass_list_of(options_)) {
  const std::vector<Pass> passes = objective_->passes(0);
  for (const PassPlan& plan : passes_.all()) {
    schedules_.emplace_back(plan_, plan);
    Pass forward{.head = {.weighting = objective_->weighting()}};
    forward.compared =
        plan.loss == LossUse::compared ? passes[plan.number].compared : Compared::nothing;
    computed_.push_back(plan.has_backward() ? passes[plan.number] : forward);
  }
}

const kernels::Device& RankPlan::device() const { return *kernels_->device; }

const std::string& RankPlan::unit_name(std::size_t unit) const { return plan_.units()[unit].name; }

std::int64_t RankPlan::lane_tokens() const { return options_.batch.micro_batch * options_.seq_len; }

std::int64_t RankPlan::tokens_per_step() const {
  return options_.batch.lanes * options_.batch.micro_batch * options_.seq_len;
}

double RankPlan::step_mean(std::int64_t step, double sum, std::size_t number) const {
  const double weight = options_.step_weight ? options_.step_weight(step, number)
                                             : static_cast<double>(tokens_per_step());
  return weight > 0.0 ? sum / weight : 0.0;
}

double RankPlan::loss_factor(const PassPlan& pass, std::int64_t step) const {
  return objective_->passes(step)[pass.number].coefficient *
         this->pass(pass).head.unit(options_.model.vocab_size);
}

bool RankPlan::trains(std::size_t unit, std::int64_t step) const {
  const TrainingSchedule* schedule = objective_->schedule();
  if (schedule == nullptr) {
    return true;
  }
  const bool layer =
      unit >= first_layer_unit() && unit < first_layer_unit() + options_.model.layers.size();
  return layer && schedule->trains(static_cast<std::int64_t>(unit - first_layer_unit()), step);
}

std::size_t RankPlan::unit_of(std::size_t group, std::size_t parameter) const {
  for (const std::size_t unit : this->group(group).units) {
    const std::size_t count = plan_.units()[unit].parameters.size();
    if (parameter < count) {
      return unit;
    }
    parameter -= count;
  }
  TRAIN_CHECK(false, "{} has no such parameter", this->group(group).name);
  return 0;
}

double RankPlan::learning_rate_of(std::int64_t step) const {
  return learning_rate(options_.schedule, options_.optimizer.lr, step, options_.total_steps);
}

}  // namespace train::engine
