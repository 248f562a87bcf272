#include "engine/simulation/model_leases.hpp"

#include <algorithm>

namespace train::engine {

ModelLeases::ModelLeases(const ShardPlan& plan, const BufferSchedule& schedule, std::int64_t rank)
    : plan_(&plan),
      schedule_(&schedule),
      gathers_(count(schedule.gathers(), rank)),
      leaves_(count(schedule.leaves(), rank)),
      packed_sync_(plan.groups().size(), -1) {
  for (State& leaf : leaves_) {
    leaf.ended = leaf.visits == 0;
  }
}

std::vector<ModelLeases::State> ModelLeases::count(const std::vector<Lease>& leases,
                                                   std::int64_t rank) const {
  std::vector<State> states(leases.size());
  for (std::size_t lease = 0; lease < leases.size(); ++lease) {
    for (std::size_t visit = leases[lease].first; visit <= leases[lease].last; ++visit) {
      const Visit& one = schedule_->visits()[visit];
      if (plan_->group_of(one.unit) == leases[lease].group &&
          plan_->train_lanes().lane(rank, one.round)) {
        ++states[lease].visits;
      }
    }
  }
  return states;
}

std::int32_t ModelLeases::start_gather() {
  if (!settled_ || next_ == gathers_.size()) {
    return -1;
  }
  const Lease& lease = schedule_->gathers()[next_];
  State& state = gathers_[next_];
  const configs::ParallelSection& parallel = plan_->parallel();
  const std::int64_t prefetch =
      lease.backward ? parallel.prefetch_backward : parallel.prefetch_forward;
  const bool buffer_free =
      lease.before < 0 || gathers_[static_cast<std::size_t>(lease.before)].ended;
  const auto ahead = std::count_if(gathers_.begin(), gathers_.begin() + std::ptrdiff_t(next_),
                                   [](const State& one) { return !one.wanted && one.visits > 0; });
  if (!buffer_free || !(state.wanted || state.visits == 0 || ahead < prefetch)) {
    return -1;
  }
  state.started = true;
  return static_cast<std::int32_t>(next_++);
}

void ModelLeases::gathered(std::int32_t gather) {
  State& state = gathers_[static_cast<std::size_t>(gather)];
  state.here = true;
  end_if_unused(state);
}

void ModelLeases::end_if_unused(State& gather) {
  gather.ended = gather.ended || (gather.here && gather.visits == 0);
}

void ModelLeases::visited(std::size_t visit) {
  if (const std::int32_t gather = schedule_->gather_of(visit); gather >= 0) {
    State& state = gathers_[static_cast<std::size_t>(gather)];
    --state.visits;
    end_if_unused(state);
  }
  if (const std::int32_t leaf = schedule_->leaf_of(visit); leaf >= 0) {
    State& state = leaves_[static_cast<std::size_t>(leaf)];
    const std::size_t group = schedule_->leaves()[static_cast<std::size_t>(leaf)].group;
    // A group without a buffer of its own sends its sums straight from the leaf.
    const bool until_packed = !plan_->own_gradient(group);
    state.ended = --state.visits == 0 && !until_packed;
  }
}

void ModelLeases::packed(std::size_t group, std::int64_t sync) {
  packed_sync_[group] = sync;
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    const Lease& lease = schedule_->leaves()[leaf];
    if (lease.group == group &&
        plan_->train_lanes().sync_of(schedule_->visits()[lease.first].round) == sync) {
      leaves_[leaf].ended = true;
    }
  }
}

bool ModelLeases::gradient_free(std::size_t group, std::int64_t sync, std::int32_t leaf) const {
  if (plan_->ranks() == 1) {
    return true;
  }
  if (leaf >= 0) {
    const std::int32_t before = schedule_->leaves()[static_cast<std::size_t>(leaf)].before;
    if (before >= 0 && !leaves_[static_cast<std::size_t>(before)].ended) {
      return false;
    }
  }
  return !plan_->own_gradient(group) || packed_sync_[group] >= sync - 1;
}

}  // namespace train::engine
