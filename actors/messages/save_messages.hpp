#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "actors/messages/event_messages.hpp"

#include "actors/messages/fields.hpp"

// A save on its way, between the index and the snapshot actor of every rank. Orders go through the
// rank, which passes them on.
namespace train::actors {

/// Disk stream -> snapshot -> index: The rank's rows are durable in the checkpoint under
/// construction.
struct ShardWritten {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  std::string record;                ///< checkpoint::shard_text(): file and tensors, with digests.
  std::uint64_t weights_digest = 0;  ///< Of its rows of the weights; ranks' values add up.
  std::int64_t elapsed_ns = 0;
};

/// What the ranks are to do with a save's shards; the first four when there are two places.
enum class ShardTask : std::uint8_t {
  seal,      ///< The local copy is complete: add the manifest and give it its name.
  send,      ///< Copy the rank's shard to the project's place, and verify it there.
  finalize,  ///< Published: the local place keeps this one and no older one.
  discard,   ///< Given up: remove what has no name yet in the local place. Also tells a rank whose
             ///< disk was full that it need not keep its copy of the state any longer.
  write,     ///< The rank's disk was full, and there is room now: write the shard again.
};

/// Index -> every rank -> snapshot: What the ranks do next with their shards: with two storage
/// locations when all ranks have done the task before, and after a full disk when there is room. It
/// is answered by ShardDone (write: ShardWritten), or by CheckpointFailed.
struct ShardOrder {
  std::int64_t step = 0;
  ShardTask task = ShardTask::seal;
  std::string manifest;  ///< seal: its text.
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
  std::string failure;                       ///< Empty: all is well.
  std::string manifest;                      ///< Of the work before sealing.
  std::optional<CheckpointWritten> written;  ///< Of the publication.
  std::int64_t retired = 0;                  ///< Of making room: checkpoints that went.
};

/// Disk stream -> index: The steps, evaluations and events that were handed over are in the
/// journal. The next batch of them may follow.
struct JournalWritten {};

/// Snapshot -> itself: Sent later. If nothing has been copied since, the memory of the staging
/// buffers is given back.
struct ReleaseStaging {
  std::uint64_t copies = 0;  ///< Made until then.
};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::SaveWorkDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::JournalWritten)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ReleaseStaging)
