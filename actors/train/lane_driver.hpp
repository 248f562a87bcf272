#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "engine/rank/lane_work.hpp"

namespace train::actors {

/// Decides when the next lane of a command may enter the chain of layer shards: its tokens are
/// there, the lane before it is wholly on the stream (they share activations, the stream keeps them
/// in order), and no more than `kLanesInFlight` lanes wait on the stream (the credits that bound
/// it). A plain class; its owner is the rank (training) or the evaluator.
class LaneDriver {
 public:
  static constexpr int kLanesInFlight = 2;

  /// A command begins that has `lanes` lanes on this rank (none: nothing is to do). REQUIRES: the
  /// one before is all enqueued.
  void start(std::int64_t lanes);
  /// The tokens of a lane are in its slot. REQUIRES: in the order of their rounds.
  void ready(const engine::LaneWork& work);
  /// The lane to send down the chain now, if there is one; call until empty.
  [[nodiscard]] std::optional<engine::LaneWork> launch();
  /// The lane launched last is wholly on the stream.
  void enqueued();
  /// The stream has run a lane (of this or an earlier command).
  void finished();

  [[nodiscard]] bool all_enqueued() const { return enqueued_ == lanes_; }
  [[nodiscard]] int in_flight() const { return in_flight_; }
  /// True if what holds the next lane up is its tokens.
  [[nodiscard]] bool wants_tokens() const;

 private:
  std::int64_t lanes_ = 0;
  std::int64_t enqueued_ = 0;
  std::int64_t last_round_ = -1;
  std::deque<engine::LaneWork> ready_;
  bool chain_busy_ = false;
  int in_flight_ = 0;
};

}  // namespace train::actors
