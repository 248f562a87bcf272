#pragma once

#include <caf/fwd.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/messages/save_messages.hpp"
#include "actors/system/handles.hpp"
#include "base/result.hpp"
#include "checkpoint/index/index_entry.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "kernels/device/stream.hpp"
#include "run/store/index_work.hpp"

namespace train::actors {

/// Carries one save at a time through to its end; sole owner of the RocksDB index of the run
/// (through `work`). The conductor grants the next save (WriteSnapshot) after SaveFinished.
///
///   writing --ShardWritten of every rank, and StepFinished of its step (if it is not one of those
///     up to `first_step`)--> the steps up to there are journalled; one location: publishing; two:
///     sealing
///   sealing --manifest made, ShardOrder seal, ShardDone of every rank--> sending (the local copy
///     is complete: CheckpointLocal to the conductor)
///   sending --ShardOrder send, ShardDone of every rank--> publishing
///   publishing --renamed into place, recorded, old ones retired--> CheckpointWritten to the
///     conductor; two locations: finalizing (ShardOrder finalize, ShardDone of every rank) --> over
///   writing (one location), sending --CheckpointFailed of ranks (once all have answered), all by a
///     full disk, the first time in this save--> making room: old checkpoints are retired as the
///     rule would after this save; if any were, those ranks repeat the task (ShardOrder write,
///     send)
///   any --CheckpointFailed of a rank (once all have answered), or a failure of the actor itself-->
///     the first failure to the conductor; the partial checkpoint is removed (two locations:
///     ShardOrder discard; one: to the ranks waiting to write again); a complete local copy stays
///     --> over
///   over: SaveFinished to the conductor.
/// If only the record fails, the checkpoint stands (it is adopted at the next start), and the
/// conductor gets CheckpointFailed.
///
/// Steps, evaluations, skips and failures of the run go into the index, too: steps in batches of
/// kJournalBatch and when a save begins or this actor ends. A refused note is logged and does not
/// fail the save; a checkpoint whose steps are not in the journal is not published (CK-7).
[[nodiscard]] IndexActor spawn_index(caf::actor_system& system,
                                     std::shared_ptr<kernels::Stream> disk,
                                     const run::IndexWork& work);

}  // namespace train::actors
