#pragma once

#include <cstdint>

#include "actors/messages/fields.hpp"
#include "run/program/command.hpp"

// The one totally ordered stream of commands that every rank follows (EX-1). `sequence` counts all
// commands of a generation from 0; `step` is the number of optimizer steps finished before the
// command.
namespace train::actors {

/// Conductor -> every rank -> collective and buffers: Run this command. The conductor sends it
/// while the command window has room; the rank passes it on when it begins: its operations enter
/// the channels, its reservations the schedule. A reference comes before the first step, a
/// snapshot after the steps that are to be saved, a search after a step whose loss or norm is
/// not finite; stop is the last, after which the rank finishes the saves that are under way and
/// reports RankStopped.
using run::Command;

/// Conductor -> index, and every rank -> snapshot: The save of `step` begins now. It is sent beside
/// the order of commands, when no other save is in progress.
struct WriteSnapshot {
  std::int64_t step = 0;
};

/// Compute stream of a rank -> conductor: All work of one command has run on the rank. When every
/// rank has sent it, the conductor has a credit for the next command.
struct CommandFinished {
  std::uint64_t sequence = 0;
  std::int32_t rank = 0;
};

}  // namespace train::actors

TRAIN_CROSSING_MESSAGE(train::run::Command)
TRAIN_CROSSING_MESSAGE(train::actors::WriteSnapshot)
TRAIN_CROSSING_MESSAGE(train::actors::CommandFinished)
