#include "engine/train_step.hpp"

namespace train::engine {

TrainStep::TrainStep(const kernels::KernelTable& kernels, const Options& options)
    : rank_(kernels, options) {}

void TrainStep::run_lane(kernels::Stream& stream, const LaneWork& lane, const ReadLane& read_lane) {
  // The slot may still be read by the lane that used it last.
  if (lane.lane >= rank_.options().lane_slots) {
    stream.synchronize();
  }
  read_lane(lane.step, lane.lane, rank_.slot_tokens(lane.slot), rank_.slot_targets(lane.slot));
  for (std::size_t unit = 0; unit < rank_.unit_count(); ++unit) {
    rank_.forward(stream, unit, lane);
  }
  if (lane.purpose == LanePurpose::evaluate) {
    return;
  }
  for (std::size_t unit = rank_.unit_count(); unit-- > 0;) {
    rank_.backward(stream, unit, lane);
  }
}

StepResult TrainStep::run(kernels::Stream& stream, std::int64_t step, const ReadLane& read_lane) {
  for (std::int64_t lane = 0; lane < rank_.options().batch.lanes; ++lane) {
    const auto slot = static_cast<std::int32_t>(lane % rank_.options().lane_slots);
    run_lane(stream, {.purpose = LanePurpose::train, .step = step, .lane = lane, .slot = slot},
             read_lane);
  }
  for (std::size_t unit = rank_.unit_count(); unit-- > 0;) {
    rank_.finish_gradient(stream, unit);
  }
  rank_.combine(stream);
  for (const ParameterGroup group : {ParameterGroup::decay, ParameterGroup::no_decay}) {
    rank_.update(stream, group, step, /*copied=*/{});
  }
  stream.synchronize();
  return rank_.step_result(step);
}

EvaluationResult TrainStep::evaluate(kernels::Stream& stream, const ReadLane& read_lane) {
  for (std::int64_t lane = 0; lane < rank_.options().eval_lanes; ++lane) {
    const auto slot = static_cast<std::int32_t>(lane % rank_.options().lane_slots);
    run_lane(stream, {.purpose = LanePurpose::evaluate, .lane = lane, .slot = slot}, read_lane);
  }
  stream.synchronize();
  return rank_.evaluation_result();
}

}  // namespace train::engine
