#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/channel.hpp"
#include "engine/command.hpp"
#include "engine/sharding/shard_plan.hpp"

namespace train::engine {

enum class CollectiveKind : std::uint8_t {
  gather,         ///< Weights of a group, from the ranks that keep them, for one reservation.
  all_gather,     ///< New weights of a group, to all ranks, after the update.
  reduce,         ///< Subtree sums of a group's gradient to the owners of their rows.
  broadcast,      ///< Reduced gradients to the replicas of their state part.
  loss_and_norm,  ///< Loss sums of lanes and norms of rows, to all ranks.
  eval_sums,      ///< Loss sums of evaluation lanes, to all ranks.
  nonfinite,      ///< Counts of NaN and Inf, to all ranks.
  reference,      ///< Log-probabilities of documents in the reference, to all ranks.
  block_sums,     ///< The blocks' sums of training lanes, to all ranks.
};

/// One collective of a pass. Every rank derives the same list, so a rank cannot leave one out.
struct CollectiveOp {
  Channel channel = Channel::control;
  CollectiveKind kind = CollectiveKind::loss_and_norm;
  std::uint32_t index = 0;     ///< In its channel, within the command.
  std::int32_t group = -1;     ///< ShardGroup; -1: of none.
  std::int32_t part = -1;      ///< gather: its reservation; reduce: its sync; else -1.
  PassPlan pass = kTrainStep;  ///< Pass of the collective, and of the reservation.
  std::uint64_t hash = 0;      ///< Hash of all the above and the plan: compared before data moves.

  /// "gather of block 3, reservation 17", for people.
  [[nodiscard]] std::string text(const ShardPlan& plan) const;
};

/// "gather", "loss and norm".
[[nodiscard]] const char* collective_name(CollectiveKind kind);

/// Last collective of a pass on the control channel; none: each rank reports its own results.
[[nodiscard]] std::optional<CollectiveKind> last_collective(const PassPlan& pass);

/// Invariant EX-2: the collectives of a pass are a pure function of the plan and the pass, listed
/// channel by channel, each in its order. One rank alone has none, and no other command has any.
///
/// Gather channel: the gathers of BufferSchedule, then, if the pass updates, the all-gathers in the
/// order of groups; reduce channel, where gradients are reduced: for each sync each group's reduce
/// in the order in which the backward pass completes groups, in the last sync of a pass that
/// updates each followed, one reduce later, by the group's broadcast; control channel:
/// last_collective().
[[nodiscard]] std::vector<CollectiveOp> expand(const ShardPlan& plan, const PassPlan& pass);

/// Starts the collectives of one rank in the order of the commands, channel by channel.
///
/// Invariant EX-2: on each channel the requests become due in exactly the order that the commands
/// expand to; a request that comes early is parked until its turn; one that nothing expects is an
/// error that names both sides. Moves no data and never waits: a plain class inside an actor.
/// Threading: one owner.
class ChannelOrder {
 public:
  /// Requests that are due now, in the order in which they have to start. Empty: parked.
  using Due = std::vector<CollectiveIdentity>;

  explicit ChannelOrder(std::uint64_t generation) : generation_(generation) {}

  /// Queues the collectives of a command (expand()). Commands come in rising order. Requests parked
  /// for it become due as far as their channel has got. Errors: failure, as in request().
  [[nodiscard]] Result<Due> begin_command(std::int64_t command,
                                          const std::vector<CollectiveOp>& ops);

  /// Asks for a collective. Of an older generation: dropped (empty). Of a command not begun yet:
  /// parked, checked when it begins. Errors: failure naming expected and requested, when the hash
  /// differs, the collective is not (or no longer) expected, was asked for twice, or belongs to a
  /// newer generation.
  [[nodiscard]] Result<Due> request(const CollectiveIdentity& identity);

  /// Collective that the channel waits for; none when those of all begun commands are done.
  [[nodiscard]] std::optional<CollectiveIdentity> expected(Channel channel) const;

 private:
  struct Expected {
    CollectiveIdentity identity;
    CollectiveOp op;
    bool requested = false;
  };
  using Queue = std::deque<Expected>;

  [[nodiscard]] Queue& queue(Channel channel) { return queues_[static_cast<std::size_t>(channel)]; }
  [[nodiscard]] Status note(const CollectiveIdentity& identity);
  [[nodiscard]] Error mismatch(const CollectiveIdentity& requested, const Expected* expected,
                               const char* why) const;
  [[nodiscard]] Due take_due(Channel channel);

  std::uint64_t generation_;
  std::int64_t last_command_ = -1;
  std::array<Queue, kChannelCount> queues_;
  std::vector<CollectiveIdentity> early_;  ///< For commands that have not begun.
};

}  // namespace train::engine
