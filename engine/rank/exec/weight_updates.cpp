#include "engine/rank/exec/weight_updates.hpp"

#include "base/text/byte_sizes.hpp"

namespace train::engine {

WeightUpdates::WeightUpdates(const RankPlan& rank, const RankState& state,
                             const RankGradients& gradients, const StepTotals& totals)
    : rank_(&rank),
      totals_(&totals),
      decay_(rank.kernels(), rank.optimizer(), ParameterGroup::decay),
      no_decay_(rank.kernels(), rank.optimizer(), ParameterGroup::no_decay),
      scratch_(rank.layout().optimizer_scratch_bytes(), "scratch of the optimizer",
               rank.device().memory),
      row_sums_(rank.kernels(), bytes_of(rank.layout().optimizer_sums(), sizeof(double)),
                "row sums of the optimizer") {
  for (std::size_t group = 0; group < rank.group_count(); ++group) {
    add_slices(state, gradients, group);
  }
}

void WeightUpdates::add_slices(const RankState& state, const RankGradients& gradients,
                               std::size_t group) {
  const std::vector<Parameter>& parameters = rank_->group(group).parameters;
  std::vector<LaneRange> reported(parameters.size());
  for (const Segment& segment : rank_->layout(group).reduce.segments) {
    reported[segment.parameter] = {segment.first_row, segment.rows};
  }
  for (const Segment& segment : rank_->layout(group).state.segments) {
    LaneRange counted = reported[segment.parameter];
    counted.first = counted.count > 0 ? counted.first - segment.first_row : 0;
    const Parameter& parameter = parameters[segment.parameter];
    const GroupState& kept = state.group(group);
    (parameter.group == ParameterGroup::decay ? decay_ : no_decay_)
        .add({.parameter = &parameter,
              .rows = segment.rows,
              .weights = kept.master(segment.parameter, segment.first_row),
              .rounded = rank_->optimizer().rounds()
                             ? kept.rounded(segment.parameter, segment.first_row)
                             : nullptr,
              .gradient = gradients.for_optimizer(group, segment),
              .states = kept.states(segment.parameter, segment.first_row),
              .row_sums = row_sums_.device<double>()},
             counted, rank_->unit_of(group, segment.parameter));
  }
}

void WeightUpdates::update(kernels::Stream& stream, ParameterGroup group, std::int64_t step,
                           const kernels::Event& copied) {
  stream.mark({.what = "optimizer update", .step = step, .unit = -1, .lane = -1});
  copied.wait_on(stream);
  const OptimizerGroup& slices = group == ParameterGroup::decay ? decay_ : no_decay_;
  slices.update(stream, {.step = step + 1,
                         .lr = rank_->learning_rate_of(step),
                         .peak_lr = rank_->options().optimizer.lr,
                         .guard = totals_->guard(),
                         .scratch = scratch_.data(),
                         .diagnosed = diagnosed(step),
                         .number_of = numbers_of(step),
                         .sums = &group_sums_[static_cast<std::size_t>(group)],
                         .row_sums = &row_sums_});
}

std::function<std::int64_t(std::size_t)> WeightUpdates::numbers_of(std::int64_t step) const {
  const TrainingSchedule* schedule = rank_->objective().schedule();
  if (schedule == nullptr) {
    return {};
  }
  return [schedule, step](std::size_t unit) {
    return schedule->update_number(
        static_cast<std::int64_t>(unit) - static_cast<std::int64_t>(RankPlan::first_layer_unit()),
        step);
  };
}

bool WeightUpdates::diagnosed(std::int64_t step) const {
  const RankOptions& options = rank_->options();
  const bool due =
      step + 1 == options.total_steps || (step + 1) % options.diagnostics_interval == 0;
  return due && row_sums_.size_bytes() > 0;
}

std::vector<ExactSum> WeightUpdates::sums(std::int64_t step) const {
  if (!diagnosed(step)) {
    return {};
  }
  std::vector<ExactSum> sums = group_sums_.front();
  add_each(sums, group_sums_.back());
  return sums;
}

void WeightUpdates::add_allocated(MemoryPlan& memory) const {
  memory.buffers_bytes += scratch_.size_bytes() + row_sums_.size_bytes();
}

}  // namespace train::engine
