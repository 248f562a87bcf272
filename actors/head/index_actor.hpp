#pragma once

#include <caf/fwd.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/handles.hpp"
#include "actors/messages/save_messages.hpp"
#include "base/result.hpp"
#include "checkpoint/index/index_entry.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "kernels/device/stream.hpp"

namespace train::actors {

/// Where a checkpoint went and how large it is.
struct WrittenCheckpoint {
  std::string directory;
  std::uint64_t size_bytes = 0;
};

/// Steps in the journal's hands before they are written together.
inline constexpr std::size_t kJournalBatch = 20;

/// What the index actor does to the disk and to the index of the run. All block, and run on its
/// stream.
struct IndexWork {
  std::int64_t first_step = 0;  ///< The steps up to this one are in the journal.
  /// The save of a step has reached a state (writing, local, publishing).
  std::function<Status(std::int64_t step, checkpoint::CheckpointState)> set_state;
  /// With two locations: the text of the manifest, for the ranks to seal their local copies with.
  /// Empty: one location.
  std::function<Result<std::string>(std::int64_t step, const std::vector<ShardWritten>&)> seal;
  /// Makes a checkpoint of the shards of all ranks, sorted by rank.
  std::function<Result<WrittenCheckpoint>(std::int64_t step, const std::vector<ShardWritten>&)>
      publish;
  /// Records a published checkpoint and retires old ones.
  std::function<Status(std::int64_t step)> record;
  /// Removes from the project's location what there is of a checkpoint that was given up. `local`:
  /// a complete copy stays in the local location.
  std::function<Status(std::int64_t step, bool local)> discard;
  /// A rank's disk was full in the save of `step`: retires what the rule would let go of after it;
  /// returns how many went.
  std::function<std::int64_t(std::int64_t step)> make_room;
  /// Adds steps to those that wait, if any do, and writes them. An error: some wait.
  std::function<Status(std::span<const checkpoint::StepRecord>)> journal;
  // Losses and events that cannot be noted now wait, too: an error says so.
  std::function<Status(std::int64_t step, double validation_loss)> evaluated;
  std::function<Status(std::string_view kind, std::string_view text)> event;
  /// The save of a step has got so far, for those who watch; none: nobody does.
  std::function<void(std::int64_t step, const char* kind)> note = {};
};

/// Sees one save after the other through to its end; sole owner of the RocksDB index of the run
/// (through `work`). One save is under way at a time: the conductor grants the next (WriteSnapshot)
/// after SaveFinished.
///
///   writing --ShardWritten of every rank, and StepFinished of its step (if it is not one of those
///     up to `first_step`)--> the steps up to there are journalled; one location: publishing; two:
///     sealing
///   sealing --manifest made, ShardOrder seal, ShardDone of every rank--> sending (the local copy
///     is complete: CheckpointLocal to the conductor)
///   sending --ShardOrder send, ShardDone of every rank--> publishing
///   publishing --renamed into place, recorded, old ones retired--> CheckpointWritten to the
///     conductor; two locations: finalizing (ShardOrder finalize, ShardDone of every rank) --> over
///   writing (one location), sending --CheckpointFailed of ranks (once all have answered), each for
///   a
///     full disk, the first time in this save--> making room: old checkpoints are retired as the
///     rule would after this save; if any went, those ranks do it again (ShardOrder write, send)
///   any --CheckpointFailed of a rank (once all have answered), or of the own work--> the first
///     failure to the conductor; what there is of it is removed (two locations: ShardOrder discard;
///     one: to the ranks that wait to write again); a whole local copy stays --> over
///   over: SaveFinished to the conductor.
/// If only the record fails, the checkpoint stands (it is adopted at the next start), and the
/// conductor gets CheckpointFailed.
///
/// Steps, evaluations, skips and failures of the run go into the index, too: steps kJournalBatch at
/// a time and when a save begins or this actor ends. That a note could not be taken is logged, and
/// no failure of the save; but one whose steps are not in the journal is not published (CK-7).
[[nodiscard]] IndexActor spawn_index(caf::actor_system& system,
                                     std::shared_ptr<kernels::Stream> disk, const IndexWork& work);

}  // namespace train::actors
