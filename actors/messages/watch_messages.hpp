#pragma once

#include <cstdint>
#include <string>

#include "actors/messages/fields.hpp"
#include "run/events/observed.hpp"

// Reports of a rank's watchdog to the head: a bounded number of integers and short texts. Ages are
// by the sender's clock at that time, as clocks of nodes differ.
namespace train::actors {

/// Part of RankObserved: A parked actor.
using run::ObservedWait;

/// Part of RankObserved: A stream that has work.
using run::ObservedStream;

/// Part of RankObserved: Progress of a rank in one channel. For a rank ahead of the others, the
/// operation it waits for is still to come.
using run::ObservedChannel;

/// Part of RankObserved: Credits of one kind, or the messages in a mailbox (no limit: -1).
using run::ObservedQueue;

/// Watchdog of a rank -> observer: The rank's progress, about once a second. The next one is sent
/// when this one has been answered by ObservationTaken.
using run::RankObserved;

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

TRAIN_CROSSING_MESSAGE(train::run::RankObserved)
TRAIN_CROSSING_MESSAGE(train::actors::ObservationTaken)
TRAIN_LOCAL_MESSAGE(train::actors::CheckStalls)
TRAIN_LOCAL_MESSAGE(train::actors::RankLost)
TRAIN_LOCAL_MESSAGE(train::actors::StatusWritten)
