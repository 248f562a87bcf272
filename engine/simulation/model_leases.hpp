#pragma once

#include <cstdint>
#include <vector>

#include "engine/sharding/buffer_schedule.hpp"

namespace train::engine {

/// The leases of one rank in one modelled step: which gathers may start, which gradients may be
/// written. The rules are those of the actor that lends buffers.
class ModelLeases {
 public:
  /// Borrows both.
  ModelLeases(const ShardPlan& plan, const BufferSchedule& schedule, std::int64_t rank);

  void settle() { settled_ = true; }  ///< The update before has run.
  void want(std::int32_t gather) { gathers_[static_cast<std::size_t>(gather)].wanted = true; }
  void gathered(std::int32_t gather);
  [[nodiscard]] bool ready(std::int32_t gather) const {
    return gathers_[static_cast<std::size_t>(gather)].here;
  }
  /// The next gather that may start now, counted as started; -1: none may.
  [[nodiscard]] std::int32_t start_gather();
  void visited(std::size_t visit);
  void packed(std::size_t group, std::int64_t sync);
  [[nodiscard]] bool gradient_free(std::size_t group, std::int64_t sync, std::int32_t leaf) const;

 private:
  struct State {
    std::int64_t visits = 0;
    bool started = false, wanted = false, here = false, ended = false;
  };
  [[nodiscard]] std::vector<State> count(const std::vector<Lease>& leases, std::int64_t rank) const;
  static void end_if_unused(State& gather);

  const ShardPlan* plan_;
  const BufferSchedule* schedule_;
  bool settled_ = false;
  std::size_t next_ = 0;
  std::vector<State> gathers_, leaves_;
  std::vector<std::int64_t> packed_sync_;  // by group
};

}  // namespace train::engine
