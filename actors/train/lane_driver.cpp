#include "actors/train/lane_driver.hpp"

#include "base/check.hpp"

namespace train::actors {

void LaneDriver::start(std::int64_t lanes) {
  TRAIN_CHECK(all_enqueued() && !chain_busy_ && ready_.empty());
  lanes_ = lanes;
  enqueued_ = 0;
  last_round_ = -1;
}

void LaneDriver::ready(const engine::LaneWork& work) {
  TRAIN_CHECK(work.round > last_round_, "round {} after {}", work.round, last_round_);
  last_round_ = work.round;
  ready_.push_back(work);
}

std::optional<engine::LaneWork> LaneDriver::launch() {
  if (chain_busy_ || ready_.empty() || in_flight_ >= kLanesInFlight) {
    return std::nullopt;
  }
  const engine::LaneWork work = ready_.front();
  ready_.pop_front();
  chain_busy_ = true;
  ++in_flight_;
  return work;
}

void LaneDriver::enqueued() {
  TRAIN_CHECK(chain_busy_);
  chain_busy_ = false;
  ++enqueued_;
}

void LaneDriver::finished() {
  TRAIN_CHECK(in_flight_ > 0);
  --in_flight_;
}

bool LaneDriver::wants_tokens() const {
  return !all_enqueued() && !chain_busy_ && ready_.empty() && in_flight_ < kLanesInFlight;
}

}  // namespace train::actors
