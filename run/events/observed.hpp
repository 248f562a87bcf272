#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::run {

/// Progress of a rank in the oldest unfinished collective of a channel.
enum class ChannelPhase : std::uint8_t {
  unasked,  ///< No actor of this rank has requested it.
  slot,     ///< Requested; waits for its staging slot.
  packing,  ///< A stream packs the data to send.
  moving,   ///< The transfer is under way.
};

/// Wait of a parked actor.
struct ObservedWait {
  std::string who = {};
  std::string what = {};
  std::int64_t age_ns = 0;
};

/// Stream that has work.
struct ObservedStream {
  std::string name = {};
  std::string doing = {};  ///< "block 3 (backward) of step 12, lane 0".
  std::string kind = {};   ///< Like `doing`, without step and lane.
  std::int64_t age_ns = 0;
  bool waits = false;  ///< It only waits for another stream.
};

/// Progress of a rank in one channel. For a rank ahead of the others, the operation it waits for is
/// still to come.
struct ObservedChannel {
  std::int32_t channel = 0;   ///< engine::Channel.
  std::uint64_t command = 0;  ///< Sequence number; if nothing is due, that of the next command.
  std::uint32_t index = 0;    ///< In the channel, within the command.
  std::int32_t phase = -1;    ///< ChannelPhase; -1: no operation is due.
  std::string what = {};      ///< "gather #17 of TrainStep 40 (block 5)".
  std::int64_t age_ns = 0;
  std::vector<std::int32_t> from = {};  ///< Ranks that send its bytes.
};

/// Credits of one kind, or the messages in a mailbox (no limit: -1).
struct ObservedQueue {
  std::string what = {};
  std::int64_t length = 0;
  std::int64_t limit = -1;
};

/// Progress of a rank. Ages are by the rank's clock at that time, as clocks of nodes differ.
struct RankObserved {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  std::string host = {};
  std::string command = {};  ///< Last command begun: "TrainStep 40"; empty: none yet.
  std::int64_t command_age_ns = 0;
  std::int64_t begun = -1;     ///< Sequence number of the last command begun.
  std::int64_t finished = -1;  ///< Sequence number of the newest command that has run.
  /// Time since commands, channels or streams last made progress.
  std::int64_t unchanged_ns = 0;
  std::vector<ObservedWait> waits = {};
  std::vector<ObservedStream> streams = {};
  std::vector<ObservedChannel> channels = {};
  std::vector<ObservedQueue> credits = {};
  std::vector<ObservedQueue> mailboxes = {};  ///< Non-empty mailboxes.
};

}  // namespace train::run
