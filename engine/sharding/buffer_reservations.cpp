#include "engine/sharding/buffer_reservations.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace train::engine {

bool lends_weights(const ShardPlan& plan, std::size_t group) {
  return !plan.resident(group) || plan.refreshed(group);
}

bool lends_leaves(const ShardPlan& plan) {
  if (plan.ranks() == 1) {
    return false;
  }
  bool own = true;
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    own = own && plan.own_gradient(group);
  }
  return !own || plan.train_lanes().syncs() > 1;
}

bool lends_anything(const ShardPlan& plan) {
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    if (lends_weights(plan, group)) {
      return true;
    }
  }
  return lends_leaves(plan);
}

LeaseBook::LeaseBook(const ShardPlan& plan, const BufferSchedule& schedule, CommandKind kind,
                     std::int64_t rank)
    : plan_(&plan), schedule_(&schedule), kind_(kind), packed_sync_(plan.groups().size(), -1) {
  gather_states_ = count_visits(schedule.gathers(), rank);
  if (lends_leaves(plan)) {
    leaf_states_ = count_visits(schedule.leaves(), rank);
    for (std::size_t leaf = 0; leaf < leaf_states_.size(); ++leaf) {
      if (leaf_states_[leaf].visits == 0) {
        end_leaf(leaf);
      }
    }
  }
}

std::vector<LeaseBook::State> LeaseBook::count_visits(const std::vector<Lease>& leases,
                                                      std::int64_t rank) const {
  const LaneSchedule& lanes =
      kind_ == CommandKind::evaluate ? plan_->eval_lanes() : plan_->train_lanes();
  std::vector<State> states(leases.size());
  for (std::size_t lease = 0; lease < leases.size(); ++lease) {
    for (std::size_t visit = leases[lease].first; visit <= leases[lease].last; ++visit) {
      const Visit& one = schedule_->visits()[visit];
      if (plan_->group_of(one.unit) == leases[lease].group && lanes.lane(rank, one.round)) {
        ++states[lease].visits;
      }
    }
  }
  return states;
}

std::vector<std::int32_t> LeaseBook::start_gathers() {
  std::vector<std::int32_t> starting;
  const auto& leases = schedule_->gathers();
  const auto ahead = [this] {
    return std::count_if(gather_states_.begin(), gather_states_.end(), [](const State& state) {
      return state.started && !state.wanted && state.visits > 0;
    });
  };
  while (settled_ && next_gather_ < leases.size()) {
    const Lease& lease = leases[next_gather_];
    State& state = gather_states_[next_gather_];
    const auto& parallel = plan_->parallel();
    const std::int64_t prefetch =
        lease.backward ? parallel.prefetch_backward : parallel.prefetch_forward;
    const bool buffer_free =
        lease.before < 0 || gather_states_[static_cast<std::size_t>(lease.before)].ended;
    // What the smaller group sends must have been copied.
    const bool kept =
        lease.keeper < 0 || gather_states_[static_cast<std::size_t>(lease.keeper)].ended;
    if (!buffer_free || !kept || !(state.wanted || state.visits == 0 || ahead() < prefetch)) {
      break;
    }
    state.started = true;
    starting.push_back(static_cast<std::int32_t>(next_gather_++));
  }
  return starting;
}

void LeaseBook::want(std::int32_t gather) {
  gather_states_.at(static_cast<std::size_t>(gather)).wanted = true;
}

void LeaseBook::gathered(std::int32_t gather) {
  State& state = gather_states_.at(static_cast<std::size_t>(gather));
  TRAIN_CHECK(state.started && !state.here, "gather {}", gather);
  state.here = true;
  end_if_unused(gather);
}

bool LeaseBook::ready(std::int32_t gather) const {
  return gather_states_.at(static_cast<std::size_t>(gather)).here;
}

bool LeaseBook::all_gathered() const {
  return std::all_of(gather_states_.begin(), gather_states_.end(),
                     [](const State& state) { return state.here; });
}

void LeaseBook::end_if_unused(std::int32_t gather) {
  State& state = gather_states_[static_cast<std::size_t>(gather)];
  if (state.here && state.visits == 0 && !state.ended) {
    state.ended = true;
    ended_.push_back(gather);
  }
}

void LeaseBook::visited(std::size_t visit) {
  if (const std::int32_t gather = schedule_->gather_of(visit); gather >= 0) {
    --gather_states_[static_cast<std::size_t>(gather)].visits;
    end_if_unused(gather);
  }
  const std::int32_t leaf = schedule_->leaf_of(visit);
  if (leaf >= 0 && !leaf_states_.empty()) {
    const auto index = static_cast<std::size_t>(leaf);
    if (--leaf_states_[index].visits == 0 && !ends_with_reduction(index)) {
      end_leaf(index);
    }
  }
}

std::vector<std::int32_t> LeaseBook::take_ended() { return std::exchange(ended_, {}); }

std::int64_t LeaseBook::sync_of_leaf(std::size_t leaf) const {
  const Lease& lease = schedule_->leaves()[leaf];
  return plan_->train_lanes().sync_of(schedule_->visits()[lease.first].round);
}

bool LeaseBook::ends_with_reduction(std::size_t leaf) const {
  return kind_ == CommandKind::train_step && !plan_->own_gradient(schedule_->leaves()[leaf].group);
}

bool LeaseBook::gradient_free(std::size_t group, std::int64_t sync, std::int32_t leaf) const {
  if (!lends_leaves(*plan_)) {
    return true;  // what is written is sent only after the last lane
  }
  if (leaf >= 0) {
    const std::int32_t before = schedule_->leaves().at(static_cast<std::size_t>(leaf)).before;
    if (before >= 0 && !leaf_states_[static_cast<std::size_t>(before)].ended) {
      return false;
    }
  }
  // Own partial sums of the sync before are still to be sent.
  return kind_ != CommandKind::train_step || !plan_->own_gradient(group) ||
         packed_sync_.at(group) >= sync - 1;
}

void LeaseBook::packed(std::size_t group, std::int64_t sync) {
  packed_sync_.at(group) = sync;
  for (std::size_t leaf = 0; leaf < leaf_states_.size(); ++leaf) {
    if (schedule_->leaves()[leaf].group == group && sync_of_leaf(leaf) == sync) {
      end_leaf(leaf);
    }
  }
}

std::int64_t LeaseBook::gathers_out() const {
  return std::count_if(gather_states_.begin(), gather_states_.end(),
                       [](const State& state) { return state.started && !state.ended; });
}

bool LeaseBook::finished() const {
  const auto ended = [](const State& state) { return state.ended; };
  return std::all_of(gather_states_.begin(), gather_states_.end(), ended) &&
         std::all_of(leaf_states_.begin(), leaf_states_.end(), ended);
}

}  // namespace train::engine
