#include "engine/rank_engine.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "engine/base/check.hpp"
#include "engine/optimizer/lr_schedule.hpp"
#include "kernels/device/device_error.hpp"

namespace train::engine {
namespace {

// The device results that the host reads after a step.
struct Scalars {
  double squared_norm = 0.0;
  double cross_entropy = 0.0;
  double z_squared = 0.0;
  double reserved = 0.0;
  kernels::UpdateGate gate;
};

// Doubles per LossSums: the stride of one of its fields over lanes.
constexpr std::int64_t kSumsStride = sizeof(kernels::LossSums) / sizeof(double);

kernels::Buffer make_sums(std::int64_t lanes, const char* name) {
  return {static_cast<std::size_t>(lanes) * sizeof(kernels::LossSums), name};
}

}  // namespace

RankEngine::RankEngine(const kernels::KernelTable& kernels, const Options& options)
    : kernels_(&kernels),
      options_(options),
      model_(options.shape, kernels, options.batch.micro_batch, options.seq_len, true),
      decay_(kernels, options.optimizer, ParameterGroup::decay),
      no_decay_(kernels, options.optimizer, ParameterGroup::no_decay) {
  const auto slot_elements =
      static_cast<std::size_t>(options.batch.micro_batch * options.seq_len * options.lane_slots);
  tokens_ = {slot_elements * sizeof(std::int32_t), "lane tokens"};
  targets_ = {slot_elements * sizeof(std::int32_t), "lane targets"};
  train_sums_ = make_sums(options.batch.lanes, "loss sums");
  eval_sums_ = make_sums(options.eval_lanes, "evaluation loss sums");
  scalars_ = {sizeof(Scalars), "step scalars"};

  const auto units = describe_units(options.shape);
  unit_norms_ = {units.size() * sizeof(double), "unit norms"};
  nonfinite_ = {
      units.size() * 2 * sizeof(std::int64_t) * static_cast<std::size_t>(options.batch.lanes),
      "non-finite counts"};
  states_.reserve(units.size());
  for (const UnitParameters& unit : units) {
    states_.emplace_back(unit);
    states_.back().initialise(options.shape, options.init);
    trees_.emplace_back(kernels, unit.element_count, options.batch.lanes,
                        "gradients of " + unit.name);
    norms_.emplace_back(kernels, unit);
  }
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    for (const Parameter& parameter : units[unit].parameters) {
      AdamwGroup& group = parameter.group == ParameterGroup::decay ? decay_ : no_decay_;
      group.add({.weights = states_[unit].weights() + parameter.offset,
                 .gradient = trees_[unit].root() + parameter.offset,
                 .exp_avg = states_[unit].exp_avg() + parameter.offset,
                 .exp_avg_sq = states_[unit].exp_avg_sq() + parameter.offset,
                 .count = parameter.count()});
    }
  }
}

const std::string& RankEngine::unit_name(std::size_t unit) const {
  return states_[unit].unit().name;
}

std::int32_t* RankEngine::slot_tokens(std::int32_t slot) const {
  return tokens_.as<std::int32_t>() + slot * options_.batch.micro_batch * options_.seq_len;
}

std::int32_t* RankEngine::slot_targets(std::int32_t slot) const {
  return targets_.as<std::int32_t>() + slot * options_.batch.micro_batch * options_.seq_len;
}

Lane RankEngine::make_lane(const LaneWork& work) const {
  const auto tokens = static_cast<double>(tokens_per_step());
  const bool training = work.purpose != LanePurpose::evaluate;
  return {.step = work.step,
          .index = work.lane,
          .sequences = options_.batch.micro_batch,
          .seq_len = options_.seq_len,
          .tokens = slot_tokens(work.slot),
          .targets = slot_targets(work.slot),
          .sums = (training ? train_sums_ : eval_sums_).as<kernels::LossSums>() + work.lane,
          .loss_scale = static_cast<float>(1.0 / tokens),
          .z_scale = static_cast<float>(static_cast<double>(options_.shape.z_loss_coeff) / tokens),
          .with_gradient = training};
}

std::int64_t* RankEngine::nonfinite_slot(const LaneWork& work, std::size_t unit,
                                         bool backward) const {
  const auto lane = static_cast<std::size_t>(work.lane);
  return nonfinite_.as<std::int64_t>() + (lane * 2 + (backward ? 1 : 0)) * unit_count() + unit;
}

void RankEngine::forward(kernels::Stream& stream, std::size_t unit, const LaneWork& work) {
  stream.mark({.what = "forward",
               .step = work.step,
               .unit = static_cast<std::int32_t>(unit),
               .lane = static_cast<std::int32_t>(work.lane)});
  const Lane lane = make_lane(work);
  float* gradient = lane.with_gradient ? trees_[unit].leaf(work.lane) : nullptr;
  model_.unit(unit).forward(stream, states_[unit].weights(), lane, gradient);
  if (work.purpose == LanePurpose::probe) {
    model_.unit(unit).count_nonfinite_output(stream, lane, nonfinite_slot(work, unit, false));
  }
}

void RankEngine::backward(kernels::Stream& stream, std::size_t unit, const LaneWork& work) {
  stream.mark({.what = "backward",
               .step = work.step,
               .unit = static_cast<std::int32_t>(unit),
               .lane = static_cast<std::int32_t>(work.lane)});
  float* gradient = trees_[unit].leaf(work.lane);
  model_.unit(unit).backward(stream, states_[unit].weights(), make_lane(work), gradient);
  if (work.purpose == LanePurpose::probe) {
    kernels_->count_nonfinite(stream, {.x = gradient,
                                       .count = states_[unit].unit().element_count,
                                       .nonfinite = nonfinite_slot(work, unit, true)});
  }
  trees_[unit].finish_leaf(stream, work.lane);
}

void RankEngine::finish_gradient(kernels::Stream& stream, std::size_t unit) {
  norms_[unit].compute(stream, trees_[unit].root(), unit_norms_.as<double>() + unit);
}

void RankEngine::combine(kernels::Stream& stream) {
  auto* scalars = scalars_.as<Scalars>();
  const auto lanes = options_.batch.lanes;
  const auto* lane_sums = train_sums_.as<kernels::LossSums>();
  kernels_->tree_sum(stream, {.values = &lane_sums->cross_entropy,
                              .out = &scalars->cross_entropy,
                              .count = lanes,
                              .stride = kSumsStride});
  kernels_->tree_sum(stream, {.values = &lane_sums->z_squared,
                              .out = &scalars->z_squared,
                              .count = lanes,
                              .stride = kSumsStride});
  kernels_->tree_sum(stream, {.values = unit_norms_.as<double>(),
                              .out = &scalars->squared_norm,
                              .count = static_cast<std::int64_t>(unit_count())});
  const auto tokens = static_cast<double>(tokens_per_step());
  kernels_->clip_scale(stream,
                       {.squared_norm = &scalars->squared_norm,
                        .cross_entropy = &scalars->cross_entropy,
                        .z_squared = &scalars->z_squared,
                        .gate = &scalars->gate,
                        .loss_scale = 1.0 / tokens,
                        .z_scale = static_cast<double>(options_.shape.z_loss_coeff) / tokens,
                        .clip = static_cast<float>(options_.optimizer.grad_clip)});
}

void RankEngine::update(kernels::Stream& stream, ParameterGroup group, std::int64_t step,
                        const kernels::Event& copied) {
  stream.mark({.what = "optimizer update", .step = step, .unit = -1, .lane = -1});
  copied.wait_on(stream);
  const AdamwGroup& which = group == ParameterGroup::decay ? decay_ : no_decay_;
  which.update(stream, step + 1, learning_rate_of(step), &scalars_.as<Scalars>()->gate);
}

StepResult RankEngine::step_result(std::int64_t step) const {
  const auto* scalars = scalars_.as<Scalars>();
  return {.loss = scalars->gate.loss,
          .cross_entropy = scalars->cross_entropy / static_cast<double>(tokens_per_step()),
          .grad_norm = static_cast<double>(scalars->gate.grad_norm),
          .lr = learning_rate_of(step),
          .poisoned = scalars->gate.poisoned != 0};
}

EvaluationResult RankEngine::evaluation_result() const {
  const auto* lane_sums = eval_sums_.as<kernels::LossSums>();
  const auto lanes = options_.eval_lanes;
  const double targets = tree_sum(&lane_sums->targets, lanes, kSumsStride);
  return {.cross_entropy = tree_sum(&lane_sums->cross_entropy, lanes, kSumsStride) / targets,
          .accuracy = tree_sum(&lane_sums->correct, lanes, kSumsStride) / targets,
          .targets = targets};
}

NonfiniteOrigin RankEngine::nonfinite_origin() const {
  for (std::int64_t lane = 0; lane < options_.batch.lanes; ++lane) {
    const LaneWork work{.purpose = LanePurpose::probe, .step = 0, .lane = lane, .slot = 0};
    for (std::size_t unit = 0; unit < unit_count(); ++unit) {
      if (*nonfinite_slot(work, unit, false) > 0) {
        return {.found = true, .lane = lane, .unit = unit, .backward = false};
      }
    }
    for (std::size_t unit = unit_count(); unit-- > 0;) {
      if (*nonfinite_slot(work, unit, true) > 0) {
        return {.found = true, .lane = lane, .unit = unit, .backward = true};
      }
    }
  }
  return {};
}

bool RankEngine::poisoned() const { return scalars_.as<Scalars>()->gate.poisoned != 0; }

std::uint64_t RankEngine::digest() const {
  std::uint64_t sum = 0;
  for (const UnitState& state : states_) {
    sum += weights_digest(state.unit(), state.weights());
  }
  return sum;
}

double RankEngine::learning_rate_of(std::int64_t step) const {
  return learning_rate(options_.schedule, options_.optimizer.lr, step, options_.total_steps);
}

std::int64_t RankEngine::tokens_per_step() const {
  return options_.batch.lanes * options_.batch.micro_batch * options_.seq_len;
}

std::vector<StateView> RankEngine::state_views() const {
  std::vector<StateView> views;
  for (const UnitState& state : states_) {
    for (StateView& view : state.state_views()) {
      views.push_back(std::move(view));
    }
  }
  return views;
}

Result<std::unique_ptr<RankEngine>> make_rank_engine(const std::string& device,
                                                     const RankEngine::Options& options) {
  const kernels::KernelTable* kernels =
      device == "cpu" ? &kernels::cpu_backend() : kernels::cuda_backend();
  if (kernels == nullptr) {
    return user_error(fmt::format(
        "runtime.device = \"{}\": this build has no such device; set runtime.device = \"cpu\"",
        device));
  }
  try {
    return std::make_unique<RankEngine>(*kernels, options);
  } catch (const kernels::DeviceError& error) {
    return failure(
        fmt::format("not enough memory: {}; lower batch.micro_batch or the model's size "
                    "(--dry-run shows what is needed)",
                    error.what()));
  }
}

const kernels::KernelTable& kernels_of(const std::string& device) {
  const kernels::KernelTable* kernels =
      device == "cpu" ? &kernels::cpu_backend() : kernels::cuda_backend();
  TRAIN_CHECK(kernels != nullptr, "no device {}", device);
  return *kernels;
}

std::string kernel_set_name() { return kernels::kernel_set(); }

double measure_peak_flops(int threads, double seconds) {
  return kernels::measure_gemm_flops(threads, seconds);
}

}  // namespace train::engine
