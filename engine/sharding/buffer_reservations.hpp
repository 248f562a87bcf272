#pragma once

#include <cstdint>
#include <vector>

#include "engine/sharding/buffer_schedule.hpp"

namespace train::engine {

/// True if the buffers actor reserves such memory; otherwise no actor has to ask it.
[[nodiscard]] bool pools_weights(const ShardPlan& plan, std::size_t group);
[[nodiscard]] bool pools_gradients(const ShardPlan& plan);
[[nodiscard]] bool uses_pool(const ShardPlan& plan);

/// The reservations of one command on one rank: which gather may start, which reservation may
/// begin. A plain class; the buffers actor owns one, and the model of a step.
///
/// Gathers start in the order of the schedule, as soon as their buffer is free and not more of them
/// than the prefetch allows are ahead of the layers. A reservation of a round in which this rank
/// has no lane begins and ends automatically: the rank still takes part in the gather (EX-1). No
/// reservation waits for a later one, so none waits for ever.
class BufferReservations {
 public:
  BufferReservations(const ShardPlan& plan, const BufferSchedule& schedule, const PassPlan& pass,
                     std::int64_t rank);

  /// Earlier commands have run: weights may be sent.
  void finalize() { finalized_ = true; }
  /// The gathers to start now, in order; each is returned once.
  [[nodiscard]] std::vector<std::int32_t> start_gathers();
  /// Notes that a layer waits for the reservation.
  void want(std::int32_t gather);
  /// Notes that the reservation's weights are in the buffer (in stream order).
  void gathered(std::int32_t gather);
  [[nodiscard]] bool ready(std::int32_t gather) const;
  /// True once every gather of the command is over: no rank reads this rank's weights any more. On
  /// a rank without lanes in the last rounds that may be after all gradients are reduced.
  [[nodiscard]] bool all_gathered() const;
  /// Notes that a visit of this rank is on the stream.
  void visited(std::size_t visit);
  /// Gathers whose reservation has ended since the last call: what keeps rows for the backward
  /// pass.
  [[nodiscard]] std::vector<std::int32_t> take_ended();

  /// The group's gradient of a lane of `sync` may be written; `gradient buffer`: its reservation,
  /// -1: none.
  [[nodiscard]] bool gradient_free(std::size_t group, std::int64_t sync,
                                   std::int32_t gradient_buffer) const;
  /// The reduction of the group's gradient in `sync` has copied it.
  void packed(std::size_t group, std::int64_t sync);

  /// Gathers that have a buffer.
  [[nodiscard]] std::int64_t gathers_out() const;
  /// All reservations have ended.
  [[nodiscard]] bool finished() const;

 private:
  struct State {
    std::int64_t visits = 0;  // of this rank that are still to come
    bool started = false, wanted = false, here = false, ended = false;
  };
  [[nodiscard]] std::vector<State> count_visits(const std::vector<Reservation>& reservations,
                                                std::int64_t rank) const;
  void end_if_unused(std::int32_t gather);
  void end_gradient(std::size_t gradient_buffer) { gradient_states_[gradient_buffer].ended = true; }
  [[nodiscard]] std::int64_t sync_of_gradient(std::size_t gradient_buffer) const;
  /// The reduction of its sync copies the gradient buffer itself, not the sum that it was added to.
  [[nodiscard]] bool ends_with_reduction(std::size_t gradient_buffer) const;

  const ShardPlan* plan_;
  const BufferSchedule* schedule_;
  PassPlan pass_;
  std::vector<State> gather_states_, gradient_states_;
  std::vector<std::int64_t> packed_sync_;  // by group: the newest; -1: none
  std::vector<std::int32_t> ended_;
  std::size_t next_gather_ = 0;
  bool finalized_ = false;
};

}  // namespace train::engine
