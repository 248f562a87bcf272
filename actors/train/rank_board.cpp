#include "actors/train/rank_board.hpp"

#include <algorithm>

namespace train::actors {

void RankBoard::begin_command(const CommandProgress& command, std::int64_t queued) {
  const std::lock_guard lock(mutex_);
  state_.command = command;
  state_.queued = queued;
}

void RankBoard::queue_commands(std::int64_t queued) {
  const std::lock_guard lock(mutex_);
  state_.queued = queued;
}

void RankBoard::finish_command(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  state_.finished = std::max(state_.finished, static_cast<std::int64_t>(sequence));
}

void RankBoard::place(engine::Channel channel, const std::optional<ChannelProgress>& place) {
  const std::lock_guard lock(mutex_);
  state_.channels[static_cast<std::size_t>(channel)] = place;
}

RankBoard::Snapshot RankBoard::look() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

}  // namespace train::actors
