#include "engine/sharding/buffer_reservations.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace train::engine {

bool pools_weights(const ShardPlan& plan, std::size_t group) {
  return !plan.resident(group) || plan.all_gathered(group);
}

bool pools_gradients(const ShardPlan& plan) {
  if (plan.ranks() == 1) {
    return false;
  }
  bool own = true;
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    own = own && (plan.own_gradient(group) || !plan.groups()[group].trained());
  }
  return !own || plan.train_lanes().syncs() > 1;
}

bool uses_pool(const ShardPlan& plan) {
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    if (pools_weights(plan, group)) {
      return true;
    }
  }
  return pools_gradients(plan);
}

BufferReservations::BufferReservations(const ShardPlan& plan, const BufferSchedule& schedule,
                                       const PassPlan& pass, std::int64_t rank)
    : plan_(&plan), schedule_(&schedule), pass_(pass), packed_sync_(plan.groups().size(), -1) {
  gather_states_ = count_visits(schedule.gathers(), rank);
  if (pools_gradients(plan)) {
    gradient_states_ = count_visits(schedule.gradient_buffers(), rank);
    for (std::size_t gradient_buffer = 0; gradient_buffer < gradient_states_.size();
         ++gradient_buffer) {
      if (gradient_states_[gradient_buffer].visits == 0) {
        end_gradient(gradient_buffer);
      }
    }
  }
}

std::vector<BufferReservations::State> BufferReservations::count_visits(
    const std::vector<Reservation>& reservations, std::int64_t rank) const {
  const LaneSchedule& lanes = plan_->lanes_of(pass_);
  std::vector<State> states(reservations.size());
  for (std::size_t reservation = 0; reservation < reservations.size(); ++reservation) {
    for (std::size_t visit = reservations[reservation].first;
         visit <= reservations[reservation].last; ++visit) {
      const Visit& one = schedule_->visits()[visit];
      if (plan_->group_of(one.unit) == reservations[reservation].group &&
          lanes.lane(rank, one.round)) {
        ++states[reservation].visits;
      }
    }
  }
  return states;
}

std::vector<std::int32_t> BufferReservations::start_gathers() {
  std::vector<std::int32_t> starting;
  const auto& reservations = schedule_->gathers();
  const auto ahead = [this] {
    return std::count_if(gather_states_.begin(), gather_states_.end(), [](const State& state) {
      return state.started && !state.wanted && state.visits > 0;
    });
  };
  while (finalized_ && next_gather_ < reservations.size()) {
    const Reservation& reservation = reservations[next_gather_];
    State& state = gather_states_[next_gather_];
    const auto& parallel = plan_->parallel();
    const std::int64_t prefetch =
        reservation.backward ? parallel.prefetch_backward : parallel.prefetch_forward;
    const bool buffer_free = reservation.before < 0 ||
                             gather_states_[static_cast<std::size_t>(reservation.before)].ended;
    // The rows that the smaller group sends must have been copied.
    const bool kept = reservation.keeper < 0 ||
                      gather_states_[static_cast<std::size_t>(reservation.keeper)].ended;
    if (!buffer_free || !kept || !(state.wanted || state.visits == 0 || ahead() < prefetch)) {
      break;
    }
    state.started = true;
    starting.push_back(static_cast<std::int32_t>(next_gather_++));
  }
  return starting;
}

void BufferReservations::want(std::int32_t gather) {
  gather_states_.at(static_cast<std::size_t>(gather)).wanted = true;
}

void BufferReservations::gathered(std::int32_t gather) {
  State& state = gather_states_.at(static_cast<std::size_t>(gather));
  TRAIN_CHECK(state.started && !state.here, "gather {}", gather);
  state.here = true;
  end_if_unused(gather);
}

bool BufferReservations::ready(std::int32_t gather) const {
  return gather_states_.at(static_cast<std::size_t>(gather)).here;
}

bool BufferReservations::all_gathered() const {
  return std::all_of(gather_states_.begin(), gather_states_.end(),
                     [](const State& state) { return state.here; });
}

void BufferReservations::end_if_unused(std::int32_t gather) {
  State& state = gather_states_[static_cast<std::size_t>(gather)];
  if (state.here && state.visits == 0 && !state.ended) {
    state.ended = true;
    ended_.push_back(gather);
  }
}

void BufferReservations::visited(std::size_t visit) {
  if (const std::int32_t gather = schedule_->gather_of(visit); gather >= 0) {
    --gather_states_[static_cast<std::size_t>(gather)].visits;
    end_if_unused(gather);
  }
  const std::int32_t gradient_buffer = schedule_->gradient_buffer_of(visit);
  if (gradient_buffer >= 0 && !gradient_states_.empty()) {
    const auto index = static_cast<std::size_t>(gradient_buffer);
    if (--gradient_states_[index].visits == 0 && !ends_with_reduction(index)) {
      end_gradient(index);
    }
  }
}

std::vector<std::int32_t> BufferReservations::take_ended() { return std::exchange(ended_, {}); }

std::int64_t BufferReservations::sync_of_gradient(std::size_t gradient_buffer) const {
  const Reservation& reservation = schedule_->gradient_buffers()[gradient_buffer];
  return plan_->train_lanes().sync_of(schedule_->visits()[reservation.first].round);
}

bool BufferReservations::ends_with_reduction(std::size_t gradient_buffer) const {
  return pass_.reduces() &&
         !plan_->own_gradient(schedule_->gradient_buffers()[gradient_buffer].group);
}

bool BufferReservations::gradient_free(std::size_t group, std::int64_t sync,
                                       std::int32_t gradient_buffer) const {
  if (!pools_gradients(*plan_) || !plan_->groups()[group].trained()) {
    return true;  // what is written is sent only after the last lane, or there is nothing
  }
  if (gradient_buffer >= 0) {
    const std::int32_t before =
        schedule_->gradient_buffers().at(static_cast<std::size_t>(gradient_buffer)).before;
    if (before >= 0 && !gradient_states_[static_cast<std::size_t>(before)].ended) {
      return false;
    }
  }
  // Own partial sums of the sync before are still to be sent.
  return !pass_.reduces() || !plan_->own_gradient(group) || packed_sync_.at(group) >= sync - 1;
}

void BufferReservations::packed(std::size_t group, std::int64_t sync) {
  packed_sync_.at(group) = sync;
  for (std::size_t gradient_buffer = 0; gradient_buffer < gradient_states_.size();
       ++gradient_buffer) {
    if (schedule_->gradient_buffers()[gradient_buffer].group == group &&
        sync_of_gradient(gradient_buffer) == sync) {
      end_gradient(gradient_buffer);
    }
  }
}

std::int64_t BufferReservations::gathers_out() const {
  return std::count_if(gather_states_.begin(), gather_states_.end(),
                       [](const State& state) { return state.started && !state.ended; });
}

bool BufferReservations::finished() const {
  const auto ended = [](const State& state) { return state.ended; };
  return std::all_of(gather_states_.begin(), gather_states_.end(), ended) &&
         std::all_of(gradient_states_.begin(), gradient_states_.end(), ended);
}

}  // namespace train::engine
