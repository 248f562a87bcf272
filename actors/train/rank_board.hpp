#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/collective/channel_order.hpp"
#include "engine/collective/collective_schedule.hpp"

namespace train::actors {

/// A command as a rank follows it.
struct CommandProgress {
  std::uint64_t sequence = 0;
  engine::CommandKind kind = engine::CommandKind::stop;
  std::int64_t step = -1;     ///< Index of the step it is of, or comes after; -1: of none.
  std::int64_t since_ns = 0;  ///< Steady clock: when the rank actor began it.
};

/// How far a rank is with the oldest collective of a channel that is not over.
enum class ChannelPhase : std::uint8_t {
  unasked,  ///< Nobody on this rank has asked for it.
  slot,     ///< Asked for; it waits for its staging slot.
  packing,  ///< A stream gets ready what it sends.
  moving,   ///< The bytes are on their way.
};

struct ChannelProgress {
  ChannelPhase phase = ChannelPhase::unasked;
  engine::CollectiveOp op;
  CommandProgress command;
  std::vector<std::int32_t> from;  ///< Ranks it has bytes from (moving).
  std::int64_t since_ns = 0;       ///< Steady clock: of the phase.
};

/// How far a rank has got with its commands and in its channels: what its actors note down, and
/// the watchdog tells the head. Threading: safe from any thread; nothing blocks for long.
class RankBoard {
 public:
  struct Snapshot {
    std::optional<CommandProgress> command;  ///< The newest that was begun.
    std::int64_t finished = -1;              ///< Sequence of the newest that has run; -1: none.
    std::int64_t queued = 0;                 ///< Commands that the rank actor has not begun.
    std::array<std::optional<ChannelProgress>, engine::kChannelCount> channels;
  };

  void begin_command(const CommandProgress& command, std::int64_t queued);
  void queue_commands(std::int64_t queued);
  void finish_command(std::uint64_t sequence);
  /// `place`: none when all begun commands have had theirs.
  void place(engine::Channel channel, const std::optional<ChannelProgress>& place);

  [[nodiscard]] Snapshot look() const;

 private:
  mutable std::mutex mutex_;
  Snapshot state_;
};

}  // namespace train::actors
