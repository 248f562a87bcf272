#include "engine/rank/plan/rank_plan.hpp"

#include <utility>

#include "base/check.hpp"
#include "engine/objective/registry.hpp"
#include "engine/optimizer/lr_schedule.hpp"

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
      train_schedule_(plan_, CommandKind::train_step),
      eval_schedule_(plan_, CommandKind::evaluate),
      nonfinite_schedule_(plan_, CommandKind::find_nonfinite),
      reference_schedule_(plan_, CommandKind::reference),
      gradient_schedule_(plan_, CommandKind::gradient),
      score_schedule_(plan_, CommandKind::score) {}

const BufferSchedule& RankPlan::schedule(CommandKind kind) const {
  TRAIN_CHECK(kind != CommandKind::snapshot && kind != CommandKind::stop, "{} visits no unit",
              name_of(kind).trace);
  return kind == CommandKind::train_step  ? train_schedule_
         : kind == CommandKind::evaluate  ? eval_schedule_
         : kind == CommandKind::reference ? reference_schedule_
         : kind == CommandKind::gradient  ? gradient_schedule_
         : kind == CommandKind::score     ? score_schedule_
                                          : nonfinite_schedule_;
}

const std::string& RankPlan::unit_name(std::size_t unit) const { return plan_.units()[unit].name; }

std::int64_t RankPlan::lane_tokens() const { return options_.batch.micro_batch * options_.seq_len; }

std::int64_t RankPlan::tokens_per_step() const {
  return options_.batch.lanes * options_.batch.micro_batch * options_.seq_len;
}

double RankPlan::step_mean(std::int64_t step, double sum, CommandKind kind) const {
  const auto& weight_of = of_first_pass(kind) ? options_.first_pass_weight : options_.step_weight;
  const double weight = weight_of ? weight_of(step) : static_cast<double>(tokens_per_step());
  return weight > 0.0 ? sum / weight : 0.0;
}

Pass RankPlan::pass(CommandKind kind, std::int64_t step) const {
  if (has_backward(kind)) {
    return pass_of(objective_->passes(step), kind);
  }
  Pass forward{.head = {.weighting = objective_->weighting()}};
  if (kind == CommandKind::reference && objective_->two_passes()) {
    forward.compared = objective_->passes(0)[step_pass(step).pass].compared;
  }
  return forward;
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
