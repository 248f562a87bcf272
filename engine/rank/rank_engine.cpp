#include "engine/rank/rank_engine.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.hpp"
#include "engine/optimizer/lr_schedule.hpp"
#include "engine/rank/host_state.hpp"
#include "engine/rank/rank_engine_parts.hpp"
#include "engine/rank/weights_digest.hpp"

namespace train::engine {
namespace {

CommandKind command_of(LanePurpose purpose) {
  switch (purpose) {
    case LanePurpose::train:
      return CommandKind::train_step;
    case LanePurpose::evaluate:
      return CommandKind::evaluate;
    case LanePurpose::probe:
      return CommandKind::diagnose;
  }
  TRAIN_CHECK(false, "lane purpose {}", static_cast<int>(purpose));
  return CommandKind::train_step;
}

kernels::Mark mark_of(const char* what, std::size_t unit, const LaneWork& work) {
  return {.what = what,
          .step = work.step,
          .unit = static_cast<std::int32_t>(unit),
          .lane = static_cast<std::int32_t>(work.lane)};
}

RankEngine::Options on_device(const kernels::KernelTable& kernels, RankEngine::Options options) {
  options.knows_bf16 = kernels.device->knows_bf16;
  return options;
}

ShardPlan plan_or_check(const RankEngine::Options& options) {
  Result<ShardPlan> plan = plan_of(options);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);
  return *std::move(plan);
}

}  // namespace

RankEngine::RankEngine(const kernels::KernelTable& kernels, const Options& options)
    : kernels_(&kernels),
      options_(on_device(kernels, options)),
      plan_(plan_or_check(options)),
      parts_(std::make_unique<Parts>(kernels, options_, plan_)) {
  TRAIN_CHECK(options.rank >= 0 && options.rank < plan_.ranks(), "rank {} of {}", options.rank,
              plan_.ranks());
  make_gradient_set();
  make_optimizer();
  settle_restored();
}

RankEngine::~RankEngine() = default;

void RankEngine::make_gradient_set() {
  std::vector<GradientShard> shards;
  std::vector<std::string> unit_names;
  for (const UnitParameters& unit : plan_.units()) {
    unit_names.push_back(unit.name);
  }
  std::vector<std::size_t> group_of_shard;
  for (std::size_t index = 0; index < plan_.groups().size(); ++index) {
    const ShardGroup& group = plan_.groups()[index];
    const std::size_t first = shards.size();
    for (const std::size_t unit : group.units) {
      for (const Parameter& parameter : plan_.units()[unit].parameters) {
        shards.push_back({.name = parameter.name, .unit = unit, .cols = parameter.cols});
        group_of_shard.push_back(index);
      }
    }
    for (const Segment& segment : parts_->layout.group(index).reduce.segments) {
      GradientShard& shard = shards[first + segment.parameter];
      shard.first_row = segment.first_row;
      shard.rows = segment.rows;
      shard.data = parts_->reduced(index) + segment.packed_offset;
    }
  }
  parts_->gradient_set.emplace(*kernels_, std::move(shards), std::move(unit_names));
  parts_->frozen.resize(plan_.groups().size());
  for (const std::string& pattern : options_.train.freeze) {
    const auto found = parts_->gradient_set->select(pattern);
    TRAIN_CHECK(found.ok(), "{}", found.error().message);
    for (const std::size_t shard : *found) {
      parts_->frozen[group_of_shard[shard]].push_back(shard);
    }
  }
}

void RankEngine::make_optimizer() {
  std::vector<bool> frozen(parts_->gradient_set->shards().size(), false);
  for (const std::vector<std::size_t>& shards : parts_->frozen) {
    for (const std::size_t shard : shards) {
      frozen[shard] = true;
    }
  }
  std::size_t first = 0;
  for (std::size_t index = 0; index < plan_.groups().size(); ++index) {
    const ShardGroup& group = plan_.groups()[index];
    const GroupState& state = parts_->states[index];
    std::vector<LaneRange> reported(group.parameters.size());
    for (const Segment& segment : parts_->layout.group(index).reduce.segments) {
      reported[segment.parameter] = {segment.first_row, segment.rows};
    }
    for (const Segment& segment : parts_->layout.group(index).state.segments) {
      if (frozen[first + segment.parameter]) {
        continue;
      }
      LaneRange counted = reported[segment.parameter];
      counted.first = counted.count > 0 ? counted.first - segment.first_row : 0;
      const bool decayed = group.parameters[segment.parameter].group == ParameterGroup::decay;
      (decayed ? parts_->decay : parts_->no_decay)
          .add(
              {.parameter = &group.parameters[segment.parameter],
               .rows = segment.rows,
               .weights = state.master(segment.parameter, segment.first_row),
               .rounded = optimizer().rounds() ? state.rounded(segment.parameter, segment.first_row)
                                               : nullptr,
               .gradient = parts_->optimizer_gradient(plan_, index, segment),
               .states = state.states(segment.parameter, segment.first_row),
               .row_sums = parts_->optimizer_sums.device<double>()},
              counted);
    }
    first += group.parameters.size();
  }
}

const BufferSchedule& RankEngine::schedule(CommandKind kind) const {
  TRAIN_CHECK(kind != CommandKind::snapshot && kind != CommandKind::stop, "{} visits no unit",
              command_name(kind));
  return kind == CommandKind::train_step ? parts_->train_schedule
         : kind == CommandKind::evaluate ? parts_->eval_schedule
                                         : parts_->diagnose_schedule;
}

const std::string& RankEngine::unit_name(std::size_t unit) const {
  return plan_.units()[unit].name;
}

std::int64_t RankEngine::lane_tokens() const {
  return options_.batch.micro_batch * options_.seq_len;
}

std::int32_t* RankEngine::slot_tokens(std::int32_t slot) const {
  return parts_->tokens.host<std::int32_t>() + slot * lane_tokens();
}

std::int32_t* RankEngine::slot_targets(std::int32_t slot) const {
  return parts_->targets.host<std::int32_t>() + slot * lane_tokens();
}

Lane RankEngine::make_lane(const LaneWork& work) const {
  const auto tokens = static_cast<double>(tokens_per_step());
  const bool training = work.purpose != LanePurpose::evaluate;
  const auto lane = static_cast<std::size_t>(work.lane);
  auto* sums = training
                   ? parts_->lane_sums(work.lane)
                   : parts_->eval_sums.device<kernels::LossSums>() + parts_->eval_sums_at.at(lane);
  return {.step = work.step,
          .index = work.lane,
          .sequences = options_.batch.micro_batch,
          .seq_len = options_.seq_len,
          .tokens = parts_->tokens.device<std::int32_t>() + work.slot * lane_tokens(),
          .targets = parts_->targets.device<std::int32_t>() + work.slot * lane_tokens(),
          .sums = sums,
          .loss_scale = static_cast<float>(1.0 / tokens),
          .z_scale = static_cast<float>(static_cast<double>(options_.shape.z_loss_coeff) / tokens),
          .with_gradient = training};
}

std::size_t RankEngine::nonfinite_at(std::int64_t lane, std::size_t unit, bool backward) const {
  const auto place = static_cast<std::size_t>(parts_->lane_at[static_cast<std::size_t>(lane)]);
  return (place * 2 + (backward ? 1 : 0)) * unit_count() + unit;
}

ConstElements RankEngine::group_weights(std::size_t group, const LaneWork& work,
                                        UnitPlace place) const {
  if (parts_->layout.group(group).made) {
    return {parts_->made_weights.data(), parts_->layout.compute_dtype()};
  }
  if (plan_.resident(group)) {
    return parts_->states[group].whole();
  }
  const auto& gathers = schedule(command_of(work.purpose)).gathers();
  TRAIN_CHECK(place.gather >= 0, "{} has no weights on lease", plan_.groups()[group].name);
  const Lease& lease = gathers.at(static_cast<std::size_t>(place.gather));
  TRAIN_CHECK(lease.group == group, "lease {} is not one of {}", place.gather,
              plan_.groups()[group].name);
  return {parts_->gather_buffers[static_cast<std::size_t>(lease.buffer)].data(),
          parts_->layout.compute_dtype()};
}

float* RankEngine::group_gradient(std::size_t group, const LaneWork& work, UnitPlace place) const {
  GroupGradient& gradient = parts_->gradients[group];
  float* leaf = nullptr;
  if (place.leaf >= 0) {
    const auto& leaves = schedule(command_of(work.purpose)).leaves();
    const Lease& lease = leaves.at(static_cast<std::size_t>(place.leaf));
    TRAIN_CHECK(lease.group == group, "leaf {} is not one of {}", place.leaf,
                plan_.groups()[group].name);
    leaf = parts_->leaves[static_cast<std::size_t>(lease.buffer)].as<float>();
  }
  if (work.purpose == LanePurpose::probe) {
    return leaf != nullptr ? leaf : gradient.own->root();
  }
  if (gradient.own) {
    return gradient.own->place({work.lane, 1}, leaf);
  }
  TRAIN_CHECK(leaf != nullptr, "{} has no leaf on lease", plan_.groups()[group].name);
  return leaf;
}

UnitMemory RankEngine::memory_of(std::size_t unit, const LaneWork& work, UnitPlace place,
                                 bool with_gradient) const {
  const std::size_t group = plan_.group_of(unit);
  const std::int64_t base = plan_.base_of(unit);
  const ConstElements weights = group_weights(group, work, place);
  float* gradient = with_gradient ? group_gradient(group, work, place) : nullptr;
  UnitMemory memory{.weights = weights + base,
                    .gradient = gradient == nullptr ? nullptr : gradient + base};
  if (options_.shape.tie_embeddings) {
    // The embedding is the first unit of its group, and the head is in the same one.
    memory.tied_weights = weights;
    memory.tied_gradient = gradient;
  }
  return memory;
}

// The units are computed one after the other, so one buffer does for all groups.
void RankEngine::make_weights(kernels::Stream& stream, std::size_t unit) {
  const std::size_t group = plan_.group_of(unit);
  if (parts_->layout.group(group).made && parts_->made_group != group) {
    parts_->states[group].make_weights(stream, parts_->made_weights.as<std::uint16_t>());
    parts_->made_group = group;
  }
}

void RankEngine::clear_probe(kernels::Stream& stream, std::size_t unit, bool backward,
                             const LaneWork& work, UnitPlace place) {
  // Padding is counted with the rest, and a shared leaf has another group's values there.
  const std::size_t group = plan_.group_of(unit);
  const bool ends_with_head = plan_.groups()[group].last_unit() + 1 == unit_count();
  const bool first = unit == plan_.groups()[group].last_unit() && backward != ends_with_head;
  if (work.purpose == LanePurpose::probe && first) {
    kernels_->fill(stream, {.out = group_gradient(group, work, place),
                            .value = 0.0F,
                            .count = plan_.groups()[group].element_count});
  }
}

void RankEngine::forward(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                         UnitPlace place) {
  stream.mark(mark_of("forward", unit, work));
  const Lane lane = make_lane(work);
  if (unit == 0) {
    const auto count = static_cast<std::size_t>(lane_tokens());
    parts_->tokens.to_device(stream, slot_tokens(work.slot), count);
    parts_->targets.to_device(stream, slot_targets(work.slot), count);
  }
  // Only the head, the last unit, has a gradient to write already.
  const bool with_gradient = lane.with_gradient && unit + 1 == unit_count();
  if (with_gradient) {
    clear_probe(stream, unit, /*backward=*/false, work, place);
  }
  make_weights(stream, unit);
  parts_->model.unit(unit).forward(stream, memory_of(unit, work, place, with_gradient), lane);
  if (unit + 1 == unit_count()) {
    (lane.with_gradient ? parts_->step_sums : parts_->eval_sums).to_host(stream, lane.sums);
  }
  if (work.purpose == LanePurpose::probe) {
    auto* count = parts_->nonfinite.device<std::int64_t>() + nonfinite_at(work.lane, unit, false);
    parts_->model.unit(unit).count_nonfinite_output(stream, lane, count);
    parts_->nonfinite.to_host(stream, count);
  }
}

void RankEngine::backward(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                          UnitPlace place) {
  stream.mark(mark_of("backward", unit, work));
  clear_probe(stream, unit, /*backward=*/true, work, place);
  make_weights(stream, unit);
  const UnitMemory memory = memory_of(unit, work, place, true);
  parts_->model.unit(unit).backward(stream, memory, make_lane(work));
  const std::size_t group = plan_.group_of(unit);
  if (work.purpose == LanePurpose::probe) {
    auto* count = parts_->nonfinite.device<std::int64_t>() + nonfinite_at(work.lane, unit, true);
    kernels_->count_nonfinite(
        stream,
        {.x = memory.gradient, .count = plan_.units()[unit].element_count, .nonfinite = count});
    parts_->nonfinite.to_host(stream, count);
  } else if (unit == plan_.groups()[group].first_unit()) {
    GroupGradient& gradient = parts_->gradients[group];
    float* whole = group_gradient(group, work, place);
    if (gradient.own) {
      gradient.own->settle(stream, {work.lane, 1}, whole);
    } else {
      gradient.leaf_lane = {work.lane, 1};
      gradient.leaf = whole;
    }
  }
}

void RankEngine::update(kernels::Stream& stream, ParameterGroup group, std::int64_t step,
                        const kernels::Event& copied) {
  stream.mark({.what = "optimizer update", .step = step, .unit = -1, .lane = -1});
  copied.wait_on(stream);
  const OptimizerGroup& which = group == ParameterGroup::decay ? parts_->decay : parts_->no_decay;
  which.update(stream, {.step = step + 1,
                        .lr = learning_rate_of(step),
                        .peak_lr = options_.optimizer.lr,
                        .gate = &parts_->scalars.device<StepScalars>()->gate,
                        .scratch = parts_->optimizer_scratch.data(),
                        .diagnosed = diagnosed(step),
                        .sums = &parts_->group_sums[static_cast<std::size_t>(group)],
                        .row_sums = &parts_->optimizer_sums});
}

bool RankEngine::diagnosed(std::int64_t step) const {
  const std::int64_t interval = options_.diagnostics_interval;
  const bool due = step + 1 == options_.total_steps || (step + 1) % interval == 0;
  return due && parts_->optimizer_sums.size_bytes() > 0;
}

const Optimizer& RankEngine::optimizer() const { return parts_->layout.optimizer(); }

void RankEngine::settle_weights(kernels::Stream& stream) {
  parts_->made_group.reset();
  if (parts_->layout.compute_weights() == ComputeWeights::bf16 && optimizer().rounds()) {
    return;  // The update has written them.
  }
  for (const GroupState& state : parts_->states) {
    state.settle(stream, parts_->rounding);
  }
}

void RankEngine::settle_restored() {
  const kernels::Device& device = *kernels_->device;
  const auto stream =
      device.is_host() ? kernels::make_inline_stream(1) : device.make_stream("settle", 1);
  parts_->made_group.reset();
  for (const GroupState& state : parts_->states) {
    state.round_whole(*stream, parts_->rounding);
    state.settle(*stream, parts_->rounding);
  }
  stream->synchronize();
}

std::uint64_t RankEngine::digest() const {
  std::uint64_t sum = 0;
  for (StateView& view : shard_views()) {  // One after the other: a copy of each is enough.
    if (is_weight(view.name)) {
      HostState rows(*kernels_->device, {std::move(view)});
      rows.load();
      sum += weights_digest(rows.views());
    }
  }
  return sum;
}

std::vector<std::uint64_t> RankEngine::tensor_digests(std::span<const std::string> names) const {
  std::vector<std::uint64_t> digests(names.size());
  for (StateView& view : shard_views()) {
    HostState rows(*kernels_->device, {std::move(view)});
    rows.load();
    const auto own = engine::tensor_digests(rows.views(), names);
    std::transform(own.begin(), own.end(), digests.begin(), digests.begin(), std::plus<>());
  }
  return digests;
}

GradientSet& RankEngine::gradients() { return *parts_->gradient_set; }

double RankEngine::learning_rate_of(std::int64_t step) const {
  return learning_rate(options_.schedule, options_.optimizer.lr, step, options_.total_steps);
}

std::int64_t RankEngine::tokens_per_step() const {
  return options_.batch.lanes * options_.batch.micro_batch * options_.seq_len;
}

std::vector<StateView> RankEngine::shard_views() const {
  std::vector<StateView> views;
  for (std::size_t index = 0; index < plan_.groups().size(); ++index) {
    parts_->states[index].append_views(parts_->layout.group(index).reduce, views);
  }
  return views;
}

std::vector<StateView> RankEngine::state_views() const {
  std::vector<StateView> views;
  for (std::size_t index = 0; index < plan_.groups().size(); ++index) {
    parts_->states[index].append_views(parts_->layout.group(index).state, views);
    parts_->states[index].append_foreign_views(views);
    parts_->states[index].append_empty_views(views);
  }
  return views;
}

const float* RankEngine::resident_weights(std::size_t unit) const {
  const std::size_t group = plan_.group_of(unit);
  if (!plan_.resident(group)) {
    return nullptr;
  }
  TRAIN_CHECK(parts_->layout.compute_dtype() == kernels::DType::f32, "these weights are bf16");
  return parts_->states[group].whole_floats() + plan_.base_of(unit);
}

Model& RankEngine::model() { return parts_->model; }

}  // namespace train::engine
