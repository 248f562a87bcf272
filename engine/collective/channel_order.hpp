#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/collective_schedule.hpp"
#include "engine/sharding/shard_plan.hpp"

namespace train::engine {

/// Which collective a caller wants to run.
struct CollectiveIdentity {
  std::uint64_t generation = 0;
  std::int64_t command = 0;  ///< Number of the command in the conductor's stream.
  Channel channel = Channel::control;
  std::uint32_t index = 0;  ///< In the channel, within the command.
  std::uint64_t hash = 0;   ///< CollectiveOp::hash.
};

/// "generation 1 command 7 reduce 2".
[[nodiscard]] std::string to_string(const CollectiveIdentity& identity);

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

  /// `plan`, if given, names groups in errors; borrowed.
  explicit ChannelOrder(std::uint64_t generation, const ShardPlan* plan = nullptr)
      : generation_(generation), plan_(plan) {}

  /// Queues the collectives of a command (expand()). Commands come in rising order. Requests parked
  /// for it become due as far as their channel has got. Errors: failure, as in request().
  [[nodiscard]] Result<Due> begin_command(std::int64_t command,
                                          const std::vector<CollectiveOp>& ops);

  /// Asks for a collective. Of an older generation: dropped (empty). Of a command not begun yet:
  /// parked, checked when it begins. Errors: failure naming expected and requested, when the hash
  /// differs, the collective is not (or no longer) expected, was asked for twice, or belongs to a
  /// newer generation.
  [[nodiscard]] Result<Due> request(const CollectiveIdentity& identity);

  /// Requests that wait for their turn, for the watchdog.
  [[nodiscard]] std::vector<CollectiveIdentity> parked() const;
  /// What the channel waits for; none when all begun commands have had theirs.
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
  const ShardPlan* plan_;
  std::int64_t last_command_ = -1;
  std::array<Queue, kChannelCount> queues_;
  std::vector<CollectiveIdentity> early_;  ///< For commands that have not begun.
};

}  // namespace train::engine
