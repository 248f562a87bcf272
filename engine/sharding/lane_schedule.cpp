#include "engine/sharding/lane_schedule.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace train::engine {
namespace {

/// Run `part` of `lanes` cut into `parts` runs; longer ones first, so that runs of equal length
/// begin at multiples of it.
LaneRange run_of(LaneRange lanes, std::int64_t part, std::int64_t parts) {
  const std::int64_t shortest = lanes.count / parts;
  const std::int64_t longer = lanes.count % parts;
  return {lanes.first + part * shortest + std::min(part, longer),
          shortest + (part < longer ? 1 : 0)};
}

}  // namespace

LaneSchedule::LaneSchedule(std::int64_t lanes, std::int64_t ranks, std::int64_t rounds_per_sync)
    : lanes_(lanes), ranks_(ranks) {
  TRAIN_CHECK(lanes >= 0 && ranks > 0 && rounds_per_sync >= 0, "{} lanes, {} ranks, {} a sync",
              lanes, ranks, rounds_per_sync);
  rounds_ = (lanes + ranks - 1) / ranks;
  const bool one_sync = rounds_per_sync == 0 || rounds_per_sync > rounds_;
  rounds_per_sync_ = std::max<std::int64_t>(1, one_sync ? rounds_ : rounds_per_sync);
}

std::int64_t LaneSchedule::syncs() const {
  return (rounds_ + rounds_per_sync_ - 1) / rounds_per_sync_;
}

std::int64_t LaneSchedule::sync_of(std::int64_t round) const {
  TRAIN_CHECK(round >= 0 && round < rounds_, "round {} of {}", round, rounds_);
  return round / rounds_per_sync_;
}

LaneRange LaneSchedule::lanes_of(std::int64_t rank, std::int64_t sync) const {
  TRAIN_CHECK(rank >= 0 && rank < ranks_, "rank {} of {}", rank, ranks_);
  TRAIN_CHECK(sync >= 0 && sync < syncs(), "sync {} of {}", sync, syncs());
  const std::int64_t whole = ranks_ * rounds_per_sync_;
  const std::int64_t first = sync * whole;
  return run_of({first, std::min(whole, lanes_ - first)}, rank, ranks_);
}

std::optional<std::int64_t> LaneSchedule::lane(std::int64_t rank, std::int64_t round) const {
  const std::int64_t sync = sync_of(round);
  const LaneRange lanes = lanes_of(rank, sync);
  const std::int64_t place = round - sync * rounds_per_sync_;
  if (place >= lanes.count) {
    return std::nullopt;
  }
  return lanes.first + place;
}

std::vector<std::int64_t> LaneSchedule::lanes_of(std::int64_t rank) const {
  std::vector<std::int64_t> all;
  for (std::int64_t sync = 0; sync < syncs(); ++sync) {
    const LaneRange lanes = lanes_of(rank, sync);
    for (std::int64_t lane = lanes.first; lane < lanes.end(); ++lane) {
      all.push_back(lane);
    }
  }
  return all;
}

std::int64_t LaneSchedule::rank_of(std::int64_t lane) const {
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    for (std::int64_t sync = 0; sync < syncs(); ++sync) {
      const LaneRange own = lanes_of(rank, sync);
      if (own.first <= lane && lane < own.end()) {
        return rank;
      }
    }
  }
  TRAIN_CHECK(false, "no rank has lane {} of {}", lane, lanes_);
  return -1;
}

std::int64_t LaneSchedule::last_round_of(std::int64_t rank, std::int64_t sync) const {
  const LaneRange lanes = lanes_of(rank, sync);
  return lanes.count == 0 ? -1 : sync * rounds_per_sync_ + lanes.count - 1;
}

}  // namespace train::engine
