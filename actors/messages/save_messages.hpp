#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actors/messages/event_messages.hpp"
#include "actors/messages/fields.hpp"
#include "run/store/index_work.hpp"

// A save in progress, between the index and the snapshot actor of every rank. Orders go through the
// rank, which passes them on.
namespace train::actors {

/// Disk stream -> snapshot -> index: The rank's rows are durable in the checkpoint under
/// construction.
using run::ShardWritten;

/// Task of the ranks for a save's shards; the first four with two storage locations.
enum class ShardTask : std::uint8_t {
  seal,      ///< The local copy is complete: add the manifest and give it its name.
  send,      ///< Copy the rank's shard to the project's location, and verify it there.
  finalize,  ///< Published: the local location keeps this one and no older one.
  discard,   ///< Given up: remove unnamed files in the local location. Also tells a rank whose disk
             ///< was full that it need not keep its copy of the state any longer.
  write,     ///< The rank's disk was full and now has room: write the shard again.
};

/// Index -> every rank -> snapshot: The next task for the ranks' shards: with two storage locations
/// when all ranks have done the previous task, and after a full disk when there is room. Answered
/// by ShardDone (write: ShardWritten), or by CheckpointFailed.
struct ShardOrder {
  std::int64_t step = 0;
  ShardTask task = ShardTask::seal;
  std::string manifest;  ///< seal: text of the manifest.
};

/// Disk stream -> snapshot -> index: The rank has done the task of a ShardOrder.
struct ShardDone {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  ShardTask task = ShardTask::seal;
};

/// Disk stream -> index: The launcher's own part of the save of `step` is done, or has failed.
struct SaveWorkDone {
  std::int64_t step = 0;
  std::string failure;                       ///< Empty: success.
  std::string manifest;                      ///< Manifest, from the work before sealing.
  std::optional<CheckpointWritten> written;  ///< Set by the publication.
  std::int64_t retired = 0;                  ///< Checkpoints retired to make room.
};

/// Disk stream -> index: The steps, evaluations and events handed over are in the journal. Their
/// next batch may follow.
struct JournalWritten {};

/// Snapshot -> itself: Sent later. If nothing has been copied since, the memory of the staging
/// buffers is released.
struct ReleaseStaging {
  std::uint64_t copies = 0;  ///< Number of copies at that time.
};

}  // namespace train::actors

TRAIN_CROSSING_MESSAGE(train::run::ShardWritten)
TRAIN_CROSSING_MESSAGE(train::actors::ShardOrder)
TRAIN_CROSSING_MESSAGE(train::actors::ShardDone)
TRAIN_LOCAL_MESSAGE(train::actors::SaveWorkDone)
TRAIN_LOCAL_MESSAGE(train::actors::JournalWritten)
TRAIN_LOCAL_MESSAGE(train::actors::ReleaseStaging)
