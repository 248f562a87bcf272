#include "actors/train/boards/rank_board.hpp"

#include <algorithm>
#include <utility>

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

void WaitTable::Line::begin(const char* what, std::int64_t step) {
  if (state_->what.load(std::memory_order_relaxed) == what) {
    return;
  }
  keep();
  state_->step.store(step, std::memory_order_relaxed);
  state_->since_ns.store(steady_now_ns(), std::memory_order_relaxed);
  state_->what.store(what, std::memory_order_release);
}

void WaitTable::Line::end() {
  keep();
  state_->what.store(nullptr, std::memory_order_release);
}

void WaitTable::Line::keep() const {
  const char* what = state_->what.load(std::memory_order_relaxed);
  if (!state_->record || what == nullptr) {
    return;
  }
  const std::lock_guard lock(state_->record->mutex);
  state_->record->ring.add({.what = what,
                            .step = state_->step.load(std::memory_order_relaxed),
                            .begin_ns = state_->since_ns.load(std::memory_order_relaxed),
                            .end_ns = steady_now_ns()});
}

WaitTable::Line WaitTable::add(std::string who) {
  Line::State& state = lines_.emplace_back();
  state.who = std::move(who);
  if (capacity_ > 0) {
    state.record = std::make_unique<Line::Record>(capacity_);
  }
  return Line(&state);
}

WaitTable::Credits WaitTable::add_credits(const char* what, std::int64_t limit) {
  Credits::State& state = credits_.emplace_back();
  state.what = what;
  state.limit = limit;
  return Credits(&state);
}

std::vector<WaitTable::Held> WaitTable::held() const {
  std::vector<Held> all;
  all.reserve(credits_.size());
  for (const Credits::State& one : credits_) {
    all.push_back({one.what, one.in_use.load(std::memory_order_relaxed), one.limit});
  }
  return all;
}

std::vector<WaitTable::Wait> WaitTable::waiting() const {
  std::vector<Wait> waits;
  for (const Line::State& line : lines_) {
    if (const char* what = line.what.load(std::memory_order_acquire); what != nullptr) {
      waits.push_back({.who = line.who,
                       .what = what,
                       .step = line.step.load(std::memory_order_relaxed),
                       .since_ns = line.since_ns.load(std::memory_order_relaxed)});
    }
  }
  return waits;
}

std::vector<WaitTable::History> WaitTable::history(std::int64_t now_ns) const {
  std::vector<History> all;
  for (const Line::State& line : lines_) {
    if (!line.record) {
      continue;
    }
    const std::lock_guard lock(line.record->mutex);
    History one{.who = line.who,
                .waits = line.record->ring.records(),
                .dropped = line.record->ring.dropped()};
    const char* what = line.what.load(std::memory_order_acquire);
    const std::int64_t since = line.since_ns.load(std::memory_order_relaxed);
    const bool over = !one.waits.empty() && one.waits.back().begin_ns == since;
    if (what != nullptr && !over && since < now_ns) {
      one.waits.push_back({what, line.step.load(std::memory_order_relaxed), since, now_ns});
    }
    all.push_back(std::move(one));
  }
  return all;
}

void RankTrace::begin_command(const CommandRecord& command) {
  const std::lock_guard lock(mutex_);
  open_ = command;
}

void RankTrace::end_command(std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  open_.end_ns = now_ns;
  commands_.add(open_);
}

void RankTrace::add(const CollectiveRecord& collective) {
  const std::lock_guard lock(mutex_);
  collectives_.add(collective);
}

RankTrace::Kept<CommandRecord> RankTrace::commands() const {
  const std::lock_guard lock(mutex_);
  return {commands_.records(), commands_.dropped()};
}

RankTrace::Kept<CollectiveRecord> RankTrace::collectives() const {
  const std::lock_guard lock(mutex_);
  return {collectives_.records(), collectives_.dropped()};
}

}  // namespace train::actors
