#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/index/index_content.hpp"
#include "checkpoint/index/index_entry.hpp"
#include "checkpoint/index/located_manifests.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "storage/kv_store.hpp"

namespace train::checkpoint {

/// What opening found, and did about it. Names of directories, in the order of steps.
struct ReconcileReport {
  std::vector<std::string> adopted;  ///< Whole in place, not recorded (a crash between the two).
  std::vector<std::string> dropped;  ///< Recorded, no longer in place (a retirement that a crash
                                     ///< cut short, or done by hand) or no longer the same.
  bool rebuilt = false;              ///< The index was damaged, behind, or lost: made anew.
  std::string reason;                ///< Of the rebuild.
};

/// The record of checkpoints and of the run (CK-7). The directory is the truth; the index is the
/// memory of what was promised, and detects when either forgot.
///
/// Every change of an entry appends to a journal whose records are chained by digests; the head of
/// the chain is copied into the next manifest, so that a store that lost its newest records is
/// noticed. Notes of what is under way, steps and events are not in the chain: they may be lost.
/// Threading: one owner. Ownership: borrows `store`, which outlives this. All calls block; "synced"
/// ones survive a power cut once they return, "buffered" ones the end of the process. Errors are
/// the store's; after one, the entries are as before the call.
class CheckpointIndex {
 public:
  /// Reads entries and notes, checks the chain, and reconciles with `checkpoints`. Reads manifests,
  /// not tensors, and of steps and events only where they end. Errors: those of the store and of
  /// reading the directory; (user) what is not recorded there is not a checkpoint of `identity`: it
  /// is not adopted, here or later (CK-11).
  static Result<CheckpointIndex> open(storage::KvStore& store, std::filesystem::path checkpoints,
                                      RunIdentity identity = {});
  /// Makes an index in an empty store, from the manifests and from `remains` of the one before.
  static Result<CheckpointIndex> make_anew(storage::KvStore& store,
                                           std::filesystem::path checkpoints,
                                           const IndexContent& remains, const std::string& reason,
                                           RunIdentity identity = {});

  /// A checkpoint on its way is now writing, local or publishing. Buffered.
  Status note(std::int64_t step, CheckpointState state);
  /// Forgets that note: the save failed or was skipped. Unknown: fine. Buffered.
  Status abandon(std::int64_t step);
  /// Records a checkpoint in place; ends its note. Synced. Again with the same manifest: no change.
  Status commit(const IndexEntry& entry);
  /// The checkpoint is no longer in place; its entry stays as history. Unknown: fine. Synced.
  Status retire(std::int64_t step);
  /// Forgets a damaged checkpoint, with an event that says why. Synced.
  Status set_aside(std::int64_t step, const std::string& reason);
  /// The validation loss of the weights after `step`; before or after its commit. Synced.
  Status evaluated(std::int64_t step, double validation_loss);

  /// Appends to the step journal; again for a step replaces it. Keeps the newest 100,000 steps and
  /// the digests of the newest 10,000 of them that have any, dropping some hundreds at a time.
  /// Buffered.
  Status log_steps(std::span<const StepRecord> records);
  /// Appends to the journal of events: started, resumed, saved, failed …. `kind` has no blanks.
  /// Keeps the newest 10,000, likewise. Buffered.
  Status log_event(std::string_view kind, std::string_view text);

  /// Compares the entries with what is in place by name, as open() does, but for manifests that it
  /// has seen: what a save that was cut short has left is adopted or forgotten. report() tells.
  Status look_again();

  /// Throws the entries away and makes them anew from the manifests in place. Validation losses and
  /// the history of retired checkpoints stay as far as the chain before proves them. Synced.
  Status rebuild(const std::string& reason);

  /// Committed and retired ones, by step. Borrowed until the next change.
  [[nodiscard]] const std::vector<IndexEntry>& entries() const { return known_.entries.all(); }
  /// Those in place, by step.
  [[nodiscard]] std::vector<IndexEntry> committed() const;
  /// By step. Borrowed until the next change.
  [[nodiscard]] const std::map<std::int64_t, IndexNote>& notes() const { return known_.notes; }
  /// "<sequence>:<digest>" of the last change; empty: there was none.
  [[nodiscard]] std::string head() const;
  /// What opening found and did.
  [[nodiscard]] const ReconcileReport& report() const { return report_; }

 private:
  CheckpointIndex(storage::KvStore& store, std::filesystem::path checkpoints, RunIdentity identity)
      : store_(&store), checkpoints_(std::move(checkpoints)), identity_(std::move(identity)) {}

  Status load_journals();
  Status finalize_notes();
  Status reconcile(const LocatedManifests& placed, bool seen);
  Status drop_legacy();
  /// `seen`: manifests of recorded checkpoints need not be read.
  Status adopt(const LocatedManifests& placed, bool seen);
  Status number_digests();
  Status rebuild_from(const LocatedManifests& placed, const std::string& reason);
  Status write(const std::vector<IndexChange>& changes, storage::WriteBatch batch);
  void add_event(storage::WriteBatch& batch, std::string_view kind, std::string_view text);
  /// Journals are cut this many records at a time: each cut reads where the last one ended.
  static constexpr std::int64_t trim_at_once = 500;
  /// Removes keys below `first_kept` from a journal that `oldest` is the first number of.
  Status trim(std::string_view prefix, std::int64_t& oldest, std::int64_t first_kept,
              storage::WriteBatch& batch, std::int64_t at_once = trim_at_once);
  Status trim_digests(std::int64_t& oldest, std::int64_t first_kept, storage::WriteBatch& batch);

  storage::KvStore* store_;
  std::filesystem::path checkpoints_;
  RunIdentity identity_;
  IndexContent known_;
  ReconcileReport report_;
  std::int64_t oldest_step_ = 0;
  std::int64_t newest_step_ = 0;
  std::int64_t oldest_digest_ = 1;  ///< By sequence, as next_digest_.
  std::int64_t next_digest_ = 1;
  std::int64_t oldest_event_ = 1;
  std::int64_t next_event_ = 1;
};

/// An index with the store it lives in.
struct OpenedIndex {
  std::unique_ptr<storage::KvStore> store;
  CheckpointIndex index;
};

/// How much of an index is read when it is opened.
enum class IndexReading : std::uint8_t {
  /// What a start needs: entries, notes, and where the journals of steps and events end. Damage of
  /// old steps shows when they are read, or rewritten by the store.
  needed,
  all,  ///< Every record: after a write that the store has refused.
};

/// Opens the RocksDB index in `directory`, creates it if missing. One that is damaged, or of a
/// format this program does not know, is made anew from the manifests and from what of it can still
/// be read, and is itself kept as <directory>.aside-<n>; report() tells. Blocks.
/// REQUIRES: the run's lock is held. Errors: open in another process, not writable (user); disk
/// full, disk broken or out of reach (failure): the index stays as it is.
Result<OpenedIndex> open_index(const std::filesystem::path& directory,
                               const std::filesystem::path& checkpoints,
                               IndexReading reading = IndexReading::needed,
                               const RunIdentity& identity = {});

}  // namespace train::checkpoint
