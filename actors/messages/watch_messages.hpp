#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/messages/fields.hpp"

// Reports of a rank's watchdog to the head: a bounded number of integers and short texts. Ages are
// by the sender's clock at that time, as clocks of nodes differ.
namespace train::actors {

/// Part of RankObserved: A parked actor.
struct ObservedWait {
  std::string who = {};
  std::string what = {};
  std::int64_t age_ns = 0;
};

/// Part of RankObserved: A stream that has work.
struct ObservedStream {
  std::string name = {};
  std::string doing = {};  ///< "block 3 (backward) of step 12, lane 0".
  std::string kind = {};   ///< Like `doing`, without step and lane.
  std::int64_t age_ns = 0;
  bool waits = false;  ///< It only waits for another stream.
};

/// Part of RankObserved: Progress of a rank in one channel. For a rank ahead of the others, the
/// operation it waits for is still to come.
struct ObservedChannel {
  std::int32_t channel = 0;   ///< engine::Channel.
  std::uint64_t command = 0;  ///< Sequence number; if nothing is due, that of the next command.
  std::uint32_t index = 0;    ///< In the channel, within the command.
  std::int32_t phase = -1;    ///< ChannelPhase; -1: no operation is due.
  std::string what = {};      ///< "gather #17 of TrainStep 40 (block 5)".
  std::int64_t age_ns = 0;
  std::vector<std::int32_t> from = {};  ///< Ranks that send its bytes.
};

/// Part of RankObserved: Credits of one kind, or the messages in a mailbox (no limit: -1).
struct ObservedQueue {
  std::string what = {};
  std::int64_t length = 0;
  std::int64_t limit = -1;
};

/// Watchdog of a rank -> observer: The rank's progress, about once a second. The next one is sent
/// when this one has been answered by ObservationTaken.
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

/// Observer -> watchdog of a rank: The RankObserved that it answers has been read.
struct ObservationTaken {};

/// Watchdog or observer -> itself: Look again. Sent once a second.
struct CheckStalls {};

/// Conductor -> observer: A rank is lost. If there was a stall before, the observer reports it now.
struct RankLost {};

/// Status stream -> observer: The status file is written, or could not be. The next one may follow.
struct StatusWritten {
  std::string failure = {};
};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::CheckStalls)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::RankLost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::StatusWritten)
