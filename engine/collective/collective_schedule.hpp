#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace train::engine {

/// Independent ordered streams of collectives: each channel keeps its order, whatever the others
/// do.
enum class Channel : std::uint8_t { gather, reduce, control };
inline constexpr std::size_t kChannelCount = 3;

[[nodiscard]] const char* channel_name(Channel channel);

enum class CommandKind : std::uint8_t { train_step, evaluate, snapshot, diagnose, stop };

[[nodiscard]] const char* command_name(CommandKind kind);

/// What decides the collectives of a command.
struct CommandShape {
  CommandKind kind = CommandKind::stop;
  std::int32_t units = 0;  ///< Units of the model, head included.
};

/// One collective of a command. Every rank derives the same list, so a rank cannot leave one out.
struct CollectiveOp {
  Channel channel = Channel::control;
  std::uint32_t index = 0;  ///< In its channel, within the command.
  std::int32_t unit = -1;   ///< -1: of no unit.
  const char* what = "";    ///< A string literal.
  std::uint64_t hash = 0;   ///< Of all the above: what ranks compare before data moves.
};

/// Invariant EX-2: the collectives of a command are a pure function of the plan and the command.
/// Strategy "none": a training step reduces every unit's gradient as the backward pass reaches it
/// (head first), then agrees on loss and norm; evaluation, snapshot and diagnosis each agree on one
/// value; stop has none.
[[nodiscard]] std::vector<CollectiveOp> expand(const CommandShape& command);

}  // namespace train::engine
