#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/index/index_entry.hpp"
#include "checkpoint/index/step_journal.hpp"

namespace train::run {

/// Rows of one rank, durable in the checkpoint under construction.
struct ShardWritten {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  std::string record;                ///< checkpoint::shard_text(): file and tensors, with digests.
  std::uint64_t weights_digest = 0;  ///< Digest of its rows of the weights; ranks' values add up.
  std::int64_t elapsed_ns = 0;
};

/// Location and size of a checkpoint.
struct WrittenCheckpoint {
  std::string directory;
  std::uint64_t size_bytes = 0;
};

/// Steps per batch of the journal.
inline constexpr std::size_t kJournalBatch = 20;

/// Operations of the index actor on the disk and the run's index. All block and run on its stream.
struct IndexWork {
  std::int64_t first_step = 0;  ///< Steps up to this one are in the journal.
  /// Notes the state of a step's save (writing, local, publishing).
  std::function<Status(std::int64_t step, checkpoint::CheckpointState)> set_state;
  /// With two locations: returns the manifest's text, for the ranks to seal their local copies.
  /// Empty: one location.
  std::function<Result<std::string>(std::int64_t step, const std::vector<ShardWritten>&)> seal;
  /// Makes a checkpoint from the shards of all ranks, sorted by rank.
  std::function<Result<WrittenCheckpoint>(std::int64_t step, const std::vector<ShardWritten>&)>
      publish;
  /// Records a published checkpoint and retires old ones.
  std::function<Status(std::int64_t step)> record;
  /// Removes an abandoned checkpoint from the project's location. `local`: a complete copy stays in
  /// the local location.
  std::function<Status(std::int64_t step, bool local)> discard;
  /// Frees space if a rank's disk was full in the save of `step`: retires the checkpoints that the
  /// rule would retire after it; returns the number retired.
  std::function<std::int64_t(std::int64_t step)> make_room;
  /// Queues steps, and writes the whole queue. On an error some stay queued.
  std::function<Status(std::span<const checkpoint::StepRecord>)> journal;
  // Losses and events that cannot be noted now are queued, too, with an error.
  std::function<Status(std::int64_t step, double validation_loss)> evaluated;
  std::function<Status(std::string_view kind, std::string_view text)> event;
  /// Reports the progress of a step's save to observers; may be null.
  std::function<void(std::int64_t step, const char* kind)> note = {};
};

}  // namespace train::run
