#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/check.hpp"
#include "engine/command.hpp"

namespace train::actors {

/// Decides when the next lane of a command may enter the chain of layer shards: its tokens are
/// ready, the lane before it is fully enqueued (lanes share activations, the stream keeps them in
/// order), and at most `kLanesInFlight` lanes wait on the stream (the credits that bound it). A
/// plain class; its owner is the rank (training) or the evaluator.
class LaneDriver {
 public:
  static constexpr int kLanesInFlight = 2;

  /// Begins a command with `lanes` lanes on this rank (may be 0). REQUIRES: the command before is
  /// fully enqueued.
  void start(std::int64_t lanes) {
    TRAIN_CHECK(all_enqueued() && !chain_busy_ && ready_.empty());
    lanes_ = lanes;
    enqueued_ = 0;
    last_round_ = -1;
  }
  /// Marks the tokens of a lane as ready in its slot. REQUIRES: calls in the order of the rounds.
  void ready(const engine::LaneWork& work) {
    TRAIN_CHECK(work.round > last_round_, "round {} after {}", work.round, last_round_);
    last_round_ = work.round;
    ready_.push_back(work);
  }
  /// Returns the lane to launch now, if there is one; call until empty.
  [[nodiscard]] std::optional<engine::LaneWork> launch() {
    if (chain_busy_ || ready_.empty() || in_flight_ >= kLanesInFlight) {
      return std::nullopt;
    }
    const engine::LaneWork work = ready_.front();
    ready_.pop_front();
    chain_busy_ = true;
    ++in_flight_;
    return work;
  }
  /// Marks the last launched lane as fully enqueued.
  void enqueued() {
    TRAIN_CHECK(chain_busy_);
    chain_busy_ = false;
    ++enqueued_;
  }
  /// Marks a lane (of this or an earlier command) as run by the stream.
  void finished() {
    TRAIN_CHECK(in_flight_ > 0);
    --in_flight_;
  }

  [[nodiscard]] bool all_enqueued() const { return enqueued_ == lanes_; }
  [[nodiscard]] int in_flight() const { return in_flight_; }
  /// True if the next lane waits only for its tokens.
  [[nodiscard]] bool wants_tokens() const {
    return !all_enqueued() && !chain_busy_ && ready_.empty() && in_flight_ < kLanesInFlight;
  }

 private:
  std::int64_t lanes_ = 0;
  std::int64_t enqueued_ = 0;
  std::int64_t last_round_ = -1;
  std::deque<engine::LaneWork> ready_;
  bool chain_busy_ = false;
  int in_flight_ = 0;
};

}  // namespace train::actors
