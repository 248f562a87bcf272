#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace train::engine {

class ShardPlan;

/// Independent ordered streams of collectives: each channel keeps its order, whatever the others
/// do.
enum class Channel : std::uint8_t { gather, reduce, control };
inline constexpr std::size_t kChannelCount = 3;
/// Collectives of one channel whose bytes may be in memory at a time.
inline constexpr std::uint32_t kStagingSlots = 2;

[[nodiscard]] const char* channel_name(Channel channel);

enum class CommandKind : std::uint8_t { train_step, evaluate, snapshot, find_nonfinite, stop };

[[nodiscard]] const char* command_name(CommandKind kind);

enum class CollectiveKind : std::uint8_t {
  gather,         ///< Weights of a group, from those who keep them, for one reservation.
  all_gather,     ///< New weights of a group, to everybody, after the update.
  reduce,         ///< Subtree sums of a group's gradient to the owners of their rows.
  broadcast,      ///< Reduced gradients to the replicas of their state part.
  loss_and_norm,  ///< Loss sums of lanes and norms of rows, to everybody.
  eval_sums,      ///< Loss sums of evaluation lanes, to everybody.
  nonfinite,      ///< Counts of NaN and Inf, to everybody.
};

/// One collective of a command. Every rank derives the same list, so a rank cannot leave one out.
struct CollectiveOp {
  Channel channel = Channel::control;
  CollectiveKind kind = CollectiveKind::loss_and_norm;
  std::uint32_t index = 0;  ///< In its channel, within the command.
  std::int32_t group = -1;  ///< ShardGroup; -1: of none.
  std::int32_t part = -1;   ///< gather: its reservation; reduce: its sync; else -1.
  /// Whose collective it is: a reservation is one of this command's.
  CommandKind command = CommandKind::train_step;
  std::uint64_t hash = 0;  ///< Of all the above and the plan: compared before data moves.

  /// "gather of block 3, reservation 17", for people.
  [[nodiscard]] std::string text(const ShardPlan& plan) const;
};

/// "gather", "loss and norm".
[[nodiscard]] const char* collective_name(CollectiveKind kind);

/// Invariant EX-2: the collectives of a command are a pure function of the plan and the command,
/// listed channel by channel, each in its order. One rank alone has none.
///
/// train_step, gather channel: the gathers of BufferSchedule, then the refreshes in the order of
/// groups; reduce channel: for each sync each group's reduce in the order in which the backward
/// pass completes groups, in the last sync each followed, one reduce later, by the group's
/// broadcast; control channel: loss_and_norm. evaluate and diagnose: their gathers, and eval_sums
/// or nonfinite. snapshot and stop have none.
[[nodiscard]] std::vector<CollectiveOp> expand(const ShardPlan& plan, CommandKind kind);

}  // namespace train::engine
