#include "engine/train_step.hpp"

#include <cstddef>

#include "engine/base/check.hpp"
#include "engine/optimizer/lr_schedule.hpp"

namespace train::engine {
namespace {

/// What a step computes besides gradients; the squared norms of the units follow it in its buffer.
struct StepScalars {
  kernels::UpdateGate gate;
  double squared_norm = 0.0;
  double cross_entropy = 0.0;
  double z_squared = 0.0;
};

constexpr std::int64_t kLossSumsStride = sizeof(kernels::LossSums) / sizeof(double);

std::size_t scalar_bytes(std::size_t units) { return sizeof(StepScalars) + units * sizeof(double); }

std::int64_t lane_rows(const TrainStep::Options& options) {
  return options.batch.micro_batch * options.seq_len;
}

}  // namespace

TrainStep::TrainStep(const kernels::KernelTable& kernels, const Options& options)
    : kernels_(&kernels),
      options_(options),
      model_(options.shape, kernels, options.batch.micro_batch, options.seq_len,
             /*with_gradient=*/true) {
  const auto lanes = static_cast<std::size_t>(options.batch.lanes);
  const std::size_t token_bytes =
      lanes * static_cast<std::size_t>(lane_rows(options)) * sizeof(std::int32_t);
  for (const UnitParameters& unit : describe_units(options.shape)) {
    units_.emplace_back(unit).initialise(options.shape, options.init);
    trees_.emplace_back(kernels, unit.element_count, options.batch.lanes, unit.name + " gradient");
    norms_.emplace_back(kernels, unit);
  }
  groups_.emplace_back(kernels, options.optimizer, ParameterGroup::decay);
  groups_.emplace_back(kernels, options.optimizer, ParameterGroup::no_decay);
  tokens_ = kernels::Buffer(token_bytes, "tokens");
  targets_ = kernels::Buffer(token_bytes, "targets");
  sums_ = kernels::Buffer(lanes * sizeof(kernels::LossSums), "loss sums");
  scalars_ = kernels::Buffer(scalar_bytes(units_.size()), "step scalars");
  add_slices();
}

void TrainStep::add_slices() {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const UnitState& state = units_[u];
    // The sum of the lanes always ends in the buffer of the first leaf.
    const float* gradient = trees_[u].leaf(0);
    for (const Parameter& parameter : state.unit().parameters) {
      groups_[parameter.group == ParameterGroup::decay ? 0 : 1].add(
          {.weights = state.weights() + parameter.offset,
           .gradient = gradient + parameter.offset,
           .exp_avg = state.exp_avg() + parameter.offset,
           .exp_avg_sq = state.exp_avg_sq() + parameter.offset,
           .count = parameter.count()});
    }
  }
}

StepResult TrainStep::run(kernels::Stream& stream, std::int64_t step, const ReadLane& read_lane) {
  const std::int64_t rows = lane_rows(options_);
  const double tokens = static_cast<double>(options_.batch.lanes * rows);
  for (std::int64_t index = 0; index < options_.batch.lanes; ++index) {
    auto* lane_tokens = tokens_.as<std::int32_t>() + index * rows;
    auto* lane_targets = targets_.as<std::int32_t>() + index * rows;
    read_lane(step, index, lane_tokens, lane_targets);
    run_lane(stream, {.step = step,
                      .index = index,
                      .sequences = options_.batch.micro_batch,
                      .seq_len = options_.seq_len,
                      .tokens = lane_tokens,
                      .targets = lane_targets,
                      .sums = sums_.as<kernels::LossSums>() + index,
                      .loss_scale = static_cast<float>(1.0 / tokens),
                      .z_scale = static_cast<float>(options_.shape.z_loss_coeff / tokens)});
  }
  reduce(stream);
  const double lr =
      learning_rate(options_.schedule, options_.optimizer.lr, step, options_.total_steps);
  const auto& scalars = *scalars_.as<StepScalars>();
  for (const AdamwGroup& group : groups_) {
    group.update(stream, step + 1, lr, &scalars.gate);
  }
  stream.synchronize();
  return {.loss = scalars.gate.loss,
          .cross_entropy = scalars.cross_entropy / tokens,
          .grad_norm = static_cast<double>(scalars.gate.grad_norm),
          .poisoned = scalars.gate.poisoned != 0};
}

void TrainStep::run_lane(kernels::Stream& stream, const Lane& lane) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    model_.unit(u).forward(stream, units_[u].weights(), lane, trees_[u].leaf(lane.index));
  }
  for (std::size_t u = units_.size(); u-- > 0;) {
    model_.unit(u).backward(stream, units_[u].weights(), lane, trees_[u].leaf(lane.index));
    trees_[u].finish_leaf(stream, lane.index);
  }
}

void TrainStep::reduce(kernels::Stream& stream) {
  const double tokens = static_cast<double>(options_.batch.lanes * lane_rows(options_));
  auto* scalars = scalars_.as<StepScalars>();
  auto* unit_norms = reinterpret_cast<double*>(scalars + 1);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    norms_[u].compute(stream, trees_[u].root(), unit_norms + u);
  }
  kernels_->tree_sum(stream, {.values = unit_norms,
                              .out = &scalars->squared_norm,
                              .count = static_cast<std::int64_t>(units_.size())});
  const auto* sums = sums_.as<kernels::LossSums>();
  kernels_->tree_sum(stream, {.values = &sums->cross_entropy,
                              .out = &scalars->cross_entropy,
                              .count = options_.batch.lanes,
                              .stride = kLossSumsStride});
  kernels_->tree_sum(stream, {.values = &sums->z_squared,
                              .out = &scalars->z_squared,
                              .count = options_.batch.lanes,
                              .stride = kLossSumsStride});
  kernels_->clip_scale(stream, {.squared_norm = &scalars->squared_norm,
                                .cross_entropy = &scalars->cross_entropy,
                                .z_squared = &scalars->z_squared,
                                .gate = &scalars->gate,
                                .loss_scale = 1.0 / tokens,
                                .z_scale = options_.shape.z_loss_coeff / tokens,
                                .clip = static_cast<float>(options_.optimizer.grad_clip)});
}

std::uint64_t TrainStep::digest() const {
  std::uint64_t digest = 0;
  for (const UnitState& state : units_) {
    digest += weights_digest(state.unit(), state.weights());
  }
  return digest;
}

}  // namespace train::engine
