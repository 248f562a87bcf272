#include "engine/rank/exec/rank_gradients.hpp"

#include <fmt/format.h>

#include <string>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"

namespace train::engine {

RankGradients::RankGradients(const RankPlan& rank, const Model& model, const RankState& state,
                             const StepTotals& totals)
    : rank_(&rank), totals_(&totals) {
  const RankLayout& layout = rank.layout();
  for (std::int64_t i = 0; i < layout.gradient_buffer_count(); ++i) {
    gradient_buffers_.emplace_back(floats(layout.gradient_buffer_elements()),
                                   fmt::format("gradient buffer {}", i), rank.device().memory);
  }
  make_groups(model);
  if (layout.several_passes()) {
    passes_.emplace(rank, state, totals);
  }
}

void RankGradients::make_groups(const Model& model) {
  const kernels::KernelTable& kernels = rank_->kernels();
  const SumOrder order = rank_->layout().sum_order();
  const RadixTree& tree = rank_->plan().lane_tree();
  std::size_t in_activations = 0;
  for (std::size_t index = 0; index < rank_->group_count(); ++index) {
    const GroupLayout& group = rank_->layout(index);
    const std::string& name = rank_->group(index).name;
    GroupGradient& gradient = groups_.emplace_back();
    if (group.own_buffers > 0) {
      gradient.own.emplace(
          kernels, group.gradient_flat, tree, order, group.own_buffers, "gradients of " + name,
          group.in_activations ? model.gradient_memory(in_activations++) : nullptr);
    }
    if (group.owner_buffers > 0) {
      gradient.owner.emplace(kernels, group.reduce.element_count, tree, order, group.owner_buffers,
                             "reduced gradients of " + name);
    }
    if (group.broadcast_apart) {
      gradient.broadcast = {floats(group.state.element_count), "broadcast gradients of " + name,
                            rank_->device().memory};
    }
  }
}

float* RankGradients::of_lane(std::size_t group, const LaneWork& work,
                              std::int32_t gradient_buffer) const {
  if (!rank_->group(group).trained()) {
    return nullptr;
  }
  const GroupGradient& gradient = groups_[group];
  float* reserved = nullptr;
  if (gradient_buffer >= 0) {
    const auto& gradient_buffers = rank_->schedule(work.pass).gradient_buffers();
    const Reservation& reservation = gradient_buffers.at(static_cast<std::size_t>(gradient_buffer));
    TRAIN_CHECK(reservation.group == group, "gradient buffer {} is not one of {}", gradient_buffer,
                rank_->group(group).name);
    reserved = gradient_buffers_[static_cast<std::size_t>(reservation.buffer)].as<float>();
  }
  if (work.pass.searches()) {
    return reserved != nullptr ? reserved : gradient.own->root();
  }
  if (gradient.own) {
    return gradient.own->place({work.lane, 1}, reserved);
  }
  TRAIN_CHECK(reserved != nullptr, "{} has no gradient buffer reserved", rank_->group(group).name);
  return reserved;
}

void RankGradients::lane_complete(kernels::Stream& stream, std::size_t group, const LaneWork& work,
                                  float* gradient) {
  GroupGradient& sums = groups_[group];
  if (sums.own) {
    sums.own->finalize(stream, {work.lane, 1}, gradient);
  } else {
    sums.buffered_lane = {work.lane, 1};
    sums.gradient_buffer = gradient;
  }
}

std::vector<std::pair<LaneRange, const float*>> RankGradients::take_sums(std::size_t group) {
  GroupGradient& gradient = groups_[group];
  std::vector<std::pair<LaneRange, const float*>> held;
  if (gradient.own) {
    held = gradient.own->held();
    gradient.own->clear();
  } else if (gradient.buffered_lane.count > 0) {
    held = {{gradient.buffered_lane, gradient.gradient_buffer}};
    gradient.buffered_lane = {};
  }
  return held;
}

LaneTree* RankGradients::owner_tree(std::size_t group) {
  return groups_[group].owner ? &*groups_[group].owner : nullptr;
}

float* RankGradients::reduced(std::size_t group) const {
  const GroupGradient& gradient = groups_[group];
  if (rank_->ranks() == 1) {
    return gradient.own->root();
  }
  return gradient.owner ? gradient.owner->root() : nullptr;
}

float* RankGradients::for_optimizer(std::size_t group, const Segment& segment) const {
  const GroupGradient& gradient = groups_[group];
  if (rank_->layout(group).broadcast_apart) {
    return gradient.broadcast.as<float>() + segment.packed_offset;
  }
  if (rank_->ranks() > 1 && rank_->plan().broadcast(group)) {
    return gradient.own->root() + segment.gradient_offset;
  }
  return reduced(group) + segment.packed_offset;
}

void RankGradients::finish(kernels::Stream& stream, std::size_t group, const LaneWork& work) {
  GroupGradient& gradient = groups_[group];
  std::optional<LaneTree>& tree = rank_->ranks() == 1 ? gradient.own : gradient.owner;
  if (!tree) {
    return;  // No row of the group is this rank's.
  }
  TRAIN_CHECK(tree->held().size() == 1, "{}: {} sums are left of {} lanes",
              rank_->group(group).name, tree->held().size(), rank_->plan().train_lanes().lanes());
  tree->clear();
  if (passes_) {
    return passes_->finish(stream, group, work, tree->root());
  }
  totals_->add_norms(stream, group, tree->root());
}

void RankGradients::add_allocated(MemoryPlan& memory) const {
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    const GroupGradient& gradient = groups_[index];
    const std::size_t all = (gradient.own ? gradient.own->size_bytes() : 0) +
                            (gradient.owner ? gradient.owner->size_bytes() : 0) +
                            gradient.broadcast.size_bytes();
    const std::size_t kept = rank_->layout().gradient_bytes(index);
    memory.gradients_bytes += kept;
    memory.lane_sums_bytes += all - kept;
  }
  memory.gradients_bytes += passes_ ? passes_->kept_bytes() : 0;
  memory.buffers_bytes += passes_ ? passes_->scratch_bytes() : 0;
  memory.reference_bytes += passes_ ? passes_->start_bytes() : 0;
  for (const kernels::Buffer& gradient_buffer : gradient_buffers_) {
    memory.transfer_bytes += gradient_buffer.size_bytes();
  }
}

}  // namespace train::engine
