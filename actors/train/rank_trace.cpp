#include "actors/train/rank_trace.hpp"

namespace train::actors {

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
