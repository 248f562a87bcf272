#include "base/byte_sizes.hpp"
#include "base/check.hpp"
#include "engine/model/model.hpp"
#include "engine/rank/exec/passes/frozen_inputs.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "engine/rank/state/reference_weights.hpp"

// The bytes of what RankLayout lays out.

namespace train::engine {

void RankLayout::add_group(MemoryPlan& memory, std::size_t index) const {
  const GroupLayout& layout = groups_[index];
  if (layout.resident && !layout.made) {
    memory.parameters_bytes += bytes_of(layout.flat, size_of(compute_dtype()));
  }
  std::size_t kept = 0;  // Besides what layers read.
  if (compute_bf16() || !layout.resident) {
    kept += floats(master_part(layout, compute_weights_).element_count);
  }
  if (compute_bf16() && !layout.resident) {
    kept += bytes_of(layout.rows.element_count, sizeof(std::uint16_t));
  }
  const std::size_t optimizer = floats(optimizer_elements(index));
  memory.parameters_bytes += kept;
  memory.optimizer_bytes += optimizer;
  memory.offloaded_bytes += offload_ == Offload::nothing ? 0 : optimizer;
  memory.offloaded_bytes += offload_ == Offload::parameters ? kept : 0;
  memory.gathered_bytes += bytes_of(layout.kept_here.element_count, compute_size());

  const std::size_t own = bytes_of(layout.own_buffers, floats(layout.gradient_flat));
  const std::size_t owner = bytes_of(layout.owner_buffers, floats(layout.reduce.element_count));
  const std::size_t apart = layout.broadcast_apart ? floats(layout.state.element_count) : 0;
  memory.gradients_bytes += gradient_bytes(index);
  memory.lane_sums_bytes += own + owner + apart - gradient_bytes(index);
  memory.gradients_bytes += several_passes_ ? floats(layout.reduce.element_count) : 0;
  memory.reference_bytes += reads_first_weights_ ? floats(layout.reduce.element_count) : 0;
}

std::size_t RankLayout::gradient_bytes(std::size_t group) const {
  // One buffer of those that a group has; the others are sums of lanes.
  const GroupLayout& layout = groups_[group];
  const Strategy strategy = plan_->groups()[group].strategy;
  if (strategy == Strategy::none || strategy == Strategy::optimizer) {
    return floats(layout.gradient_flat);
  }
  return floats(layout.broadcast_apart ? layout.state.element_count : layout.reduce.element_count);
}

ActivationOptions RankLayout::activations(const Checkpointing& checkpointing) const {
  ActivationOptions options{.checkpointing = checkpointing, .dtype = compute_dtype()};
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    if (groups_[index].in_activations) {
      options.gradients.push_back(
          {plan_->groups()[index].last_unit(), floats(groups_[index].gradient_flat)});
    }
  }
  return options;
}

MemoryPlan RankLayout::memory() const {
  MemoryPlan memory;
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    add_group(memory, index);
  }
  memory.gathered_bytes +=
      bytes_of(gather_buffers_, bytes_of(gather_elements_, size_of(compute_dtype()))) +
      bytes_of(made_elements(), size_of(compute_dtype()));
  memory.transfer_bytes =
      kStagingSlots * (staging_bytes(Channel::gather) + staging_bytes(Channel::reduce)) +
      bytes_of(gradient_buffer_count_, floats(gradient_buffer_elements_)) +
      floats(sum_scratch_elements());
  memory.buffers_bytes =
      lane_slot_bytes_ + scored_bytes_ + bytes_of(step_block(ranks_), sizeof(double)) +
      bytes_of(eval_block(ranks_) * lane_doubles_, sizeof(double)) +
      bytes_of(lane_block(ranks_), 2 * plan_->unit_count() * sizeof(std::int64_t)) +
      bytes_of(norm_rows(), sizeof(double)) + bytes_of(rounding_elements(), sizeof(std::uint16_t)) +
      optimizer_scratch_bytes() + bytes_of(optimizer_sums(), sizeof(double)) +
      (several_passes_ ? floats(largest_segment()) : 0) + distance_factor_bytes();
  return memory;
}

std::size_t RankLayout::distance_factor_bytes() const {
  std::int64_t parameters = 0;
  for (const UnitParameters& unit : plan_->units()) {
    parameters += static_cast<std::int64_t>(unit.parameters.size());
  }
  return rewards_distance_ ? floats(parameters) : 0;
}

MemoryPlan plan_beside_activations(const RankLayout& layout, const ShardPlan& plan,
                                   const RankOptions& options) {
  MemoryPlan memory = layout.memory();
  for (std::size_t index = 0; index < plan.groups().size(); ++index) {
    if (copies_reference(options, plan.groups()[index])) {
      memory.reference_bytes += ReferenceWeights::planned_bytes(layout, index);
    }
  }
  memory.reference_bytes += FrozenInputs::planned_bytes(layout, plan, options);
  return memory;
}

MemoryPlan plan_memory(const RankOptions& options) {
  const Result<ShardPlan> plan = plan_of(options);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);
  const RankLayout layout(*plan, options);
  MemoryPlan memory = plan_beside_activations(layout, *plan, options);
  memory.activations_bytes = planned_activation_bytes(
      trained_model(options), options.batch.micro_batch, options.seq_len,
      /*with_gradient=*/true, layout.activations(checkpointing_of(options.memory)));
  return memory;
}

RankOptions largest_phase(const RankOptions& options) {
  RankOptions largest = options;
  if (!keeps_state_by_phase(options)) {
    return largest;
  }
  RankOptions phase = options;
  std::size_t most = 0;
  for (phase.phase_step = 0; phase.phase_step < options.total_steps;
       phase.phase_step = last_step_of(phase)) {
    if (const std::size_t bytes = plan_memory(phase).total_bytes(); bytes > most) {
      most = bytes;
      largest = phase;
    }
  }
  largest.model = trained_model(largest);
  return largest;
}

}  // namespace train::engine
