#include "engine/rank/state/reference_weights.hpp"

#include <algorithm>

#include "base/text/byte_sizes.hpp"
#include "engine/objective/registry.hpp"

namespace train::engine {

bool has_live_reference(const RankOptions& options) {
  const auto objective = make_objective(options.objective);
  return objective->reads_frozen() ||
         (options.objective.reference == "live" && needs_reference(*objective));
}

bool needs_first_weights(const RankOptions& options) {
  return has_live_reference(options) || make_objective(options.objective)->reads_first_weights();
}

namespace {

/// A group that is frozen now may have been trained in an earlier phase.
bool was_trained(const RankOptions& options, const ShardGroup& group) {
  const auto schedule = schedule_of(options.objective);
  return group.trained() ||
         (schedule != nullptr &&
          std::any_of(group.units.begin(), group.units.end(), [&](std::size_t unit) {
            constexpr std::size_t first = RankPlan::first_layer_unit();
            return unit >= first && schedule->ever_trains(static_cast<std::int64_t>(unit - first));
          }));
}

}  // namespace

bool copies_reference(const RankOptions& options, const ShardGroup& group) {
  return has_live_reference(options) && options.lora.rank == 0 && was_trained(options, group);
}

ReferenceWeights::ReferenceWeights(const RankPlan& rank, const RankState& state)
    : rank_(&rank), state_(&state) {
  const kernels::Device& device = rank.device();
  const auto stream =
      device.is_host() ? kernels::make_inline_stream(1) : device.make_stream("reference", 1);
  for (std::size_t index = 0; index < rank.group_count(); ++index) {
    copies_.emplace_back();
    if (!copies_reference(rank.options(), rank.group(index))) {
      continue;
    }
    copies_[index] = {planned_bytes(rank.layout(), index),
                      rank.group(index).name + " reference weights", device.memory};
    const kernels::Buffer& copy = copies_[index];
    const GroupState& group = state.group(index);
    if (rank.layout(index).made) {
      group.make_weights(*stream, copy.as<std::uint16_t>());
      stream->synchronize();
    } else {
      const auto* from = rank.layout(index).resident
                             ? reinterpret_cast<const std::byte*>(group.whole().data)
                             : group.shard();
      device.copy(copy.data(), from, copy.size_bytes());
    }
  }
}

std::size_t ReferenceWeights::planned_bytes(const RankLayout& layout, std::size_t group) {
  const GroupLayout& of_group = layout.group(group);
  return of_group.resident ? bytes_of(of_group.flat, kernels::size_of(layout.compute_dtype()))
                           : bytes_of(of_group.rows.element_count, layout.compute_size());
}

bool ReferenceWeights::serve(const PassPlan& pass, std::size_t group) const {
  return pass.frozen && copies_[group].data() != nullptr;
}

ConstElements ReferenceWeights::whole(std::size_t group) const {
  return {copies_[group].data(), rank_->layout().compute_dtype()};
}

const std::byte* ReferenceWeights::shard(const PassPlan& pass, std::size_t group) const {
  return serve(pass, group) ? copies_[group].data() : state_->group(group).shard();
}

void ReferenceWeights::add_allocated(MemoryPlan& memory) const {
  for (const kernels::Buffer& copy : copies_) {
    memory.reference_bytes += copy.size_bytes();
  }
}

}  // namespace train::engine
