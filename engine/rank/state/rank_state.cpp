#include "engine/rank/state/rank_state.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"
#include "engine/host_state.hpp"
#include "engine/optimizer/averaged.hpp"
#include "engine/rank/state/state_rows.hpp"

namespace train::engine {

RankState::RankState(const RankPlan& rank)
    : rank_(&rank),
      rounding_(bytes_of(rank.layout().rounding_elements(), sizeof(std::uint16_t)),
                "rounded weights", rank.device().memory),
      made_weights_(
          bytes_of(rank.layout().made_elements(), kernels::size_of(rank.layout().compute_dtype())),
          "made weights", rank.device().memory) {
  groups_.reserve(rank.group_count());
  for (std::size_t index = 0; index < rank.group_count(); ++index) {
    groups_.emplace_back(rank.kernels(), rank.group(index), rank.layout(index), rank.optimizer(),
                         rank.layout().compute_weights(), rank.layout().offload());
    groups_.back().initialise(rank.options().model, rank.options().init);
  }
  finalize_restored();
}

// The units are computed one after the other, so one buffer does for all groups.
void RankState::make_weights(kernels::Stream& stream, std::size_t group) {
  if (rank_->layout(group).made && made_group_ != group) {
    groups_[group].make_weights(stream, made_weights_.as<std::uint16_t>());
    made_group_ = group;
  }
}

ConstElements RankState::made_weights() const {
  return {made_weights_.data(), rank_->layout().compute_dtype()};
}

void RankState::finalize(kernels::Stream& stream) {
  made_group_.reset();
  const bool is_rounded =
      rank_->layout().compute_weights() == ComputeWeights::bf16 && rank_->optimizer().rounds();
  for (const GroupState& group : groups_) {
    group.finalize(stream, rounding_, is_rounded);
  }
}

void RankState::finalize_restored() {
  const kernels::Device& device = rank_->device();
  const auto stream =
      device.is_host() ? kernels::make_inline_stream(1) : device.make_stream("finalize", 1);
  made_group_.reset();
  for (const GroupState& group : groups_) {
    group.round_whole(*stream, rounding_);
    group.finalize(*stream, rounding_);
  }
  stream->synchronize();
}

void RankState::take_average() {
  const Optimizer& optimizer = rank_->optimizer();
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    const GroupState& group = groups_[index];
    for (const Segment& segment : rank_->layout(index).state.segments) {
      const Parameter& parameter = rank_->group(index).parameters[segment.parameter];
      const auto& names = optimizer.states(parameter);
      const auto average = std::find(names.begin(), names.end(), kAverageState);
      TRAIN_CHECK(average != names.end(), "no average of {}", parameter.name);
      const auto number = static_cast<std::size_t>(average - names.begin());
      rank_->device().copy(group.master(segment.parameter, segment.first_row),
                           group.states(segment.parameter, segment.first_row)[number],
                           floats(segment.count));
    }
  }
  finalize_restored();
}

std::vector<StateView> RankState::shard_views() const {
  std::vector<StateView> views;
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    groups_[index].append_views(rank_->plan().reduce_part(index, rank_->rank()), views);
  }
  return views;
}

std::vector<StateView> RankState::views() const {
  std::vector<StateView> views;
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    groups_[index].append_views(rank_->layout(index).rows, views);
    groups_[index].append_foreign_views(views);
    groups_[index].append_empty_views(views);
  }
  return views;
}

std::uint64_t RankState::digest() const {
  std::uint64_t sum = 0;
  for (StateView& view : shard_views()) {  // One after the other: a copy of each is enough.
    if (is_weight(view.name)) {
      HostState rows(rank_->device(), {std::move(view)});
      rows.load();
      sum += weights_digest(rows.views());
    }
  }
  return sum;
}

std::vector<std::uint64_t> RankState::tensor_digests(std::span<const std::string> names) const {
  std::vector<std::uint64_t> digests(names.size());
  for (StateView& view : shard_views()) {
    HostState rows(rank_->device(), {std::move(view)});
    rows.load();
    const auto own = engine::tensor_digests(rows.views(), names);
    std::transform(own.begin(), own.end(), digests.begin(), digests.begin(), std::plus<>());
  }
  return digests;
}

void RankState::add_allocated(MemoryPlan& memory) const {
  for (const GroupState& group : groups_) {
    memory.parameters_bytes += group.weights_bytes();
    memory.optimizer_bytes += group.optimizer_bytes();
    memory.offloaded_bytes += group.offloaded_bytes();
  }
  memory.gathered_bytes += made_weights_.size_bytes();
  memory.buffers_bytes += rounding_.size_bytes();
}

}  // namespace train::engine
