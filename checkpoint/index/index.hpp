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

/// Findings when opening, and the actions taken. Names of directories, in step order.
struct ReconcileReport {
  std::vector<std::string> adopted;  ///< Intact in place, but not recorded (a crash in between).
  std::vector<std::string> dropped;  ///< Recorded, but missing (a retirement interrupted by a
                                     ///< crash, or a manual removal) or changed.
  bool rebuilt = false;              ///< The index was damaged, behind, or lost, and was rebuilt.
  std::string reason;                ///< Reason for the rebuild.
};

/// Record of a run's checkpoints and steps (CK-7). The directory is authoritative; the index
/// remembers what was committed, and detects when either lost something.
///
/// Every change of an entry appends to a journal whose records are chained by digests; the head of
/// the chain is copied into the next manifest, so that a store that lost its newest records is
/// detected. Notes of work in progress, steps and events are not in the chain and may be lost.
/// Threading: one owner. Ownership: borrows `store`, which outlives this object. All calls block;
/// "synced" ones survive a power cut once they return, "buffered" ones the end of the process.
/// Errors are the store's; after one, the entries are unchanged.
class CheckpointIndex {
 public:
  /// Reads entries and notes, checks the chain, and reconciles with `checkpoints`. Reads manifests,
  /// not tensors, and only the ends of steps and events. Errors: those of the store and of reading
  /// the directory; (user) an unrecorded checkpoint there does not belong to `identity`: it is
  /// never adopted (CK-11).
  static Result<CheckpointIndex> open(storage::KvStore& store, std::filesystem::path checkpoints,
                                      RunIdentity identity = {});
  /// Makes an index in an empty store, from the manifests and from the `remains` of the old index.
  static Result<CheckpointIndex> make_anew(storage::KvStore& store,
                                           std::filesystem::path checkpoints,
                                           const IndexContent& remains, const std::string& reason,
                                           RunIdentity identity = {});

  /// Notes that a checkpoint is now writing, local or publishing. Buffered.
  Status note(std::int64_t step, CheckpointState state);
  /// Removes that note: the save failed or was skipped. Unknown steps are fine. Buffered.
  Status abandon(std::int64_t step);
  /// Records a checkpoint in place; removes its note. Synced. Repeating it with the same manifest
  /// changes nothing.
  Status commit(const IndexEntry& entry);
  /// Records that the checkpoint is no longer in place; its entry stays as history. Unknown steps
  /// are fine. Synced.
  Status retire(std::int64_t step);
  /// Removes a damaged checkpoint's entry, and logs an event with the reason. Synced.
  Status set_aside(std::int64_t step, const std::string& reason);
  /// Records the validation loss of the weights after `step`, before or after its commit; of a
  /// retired one, for its next commit. Synced.
  Status evaluated(std::int64_t step, double validation_loss);

  /// Appends to the step journal; a repeated step replaces the old record. Keeps the newest 100,000
  /// steps and the newest 10,000 digests, dropping some hundreds at a time. Buffered.
  Status log_steps(std::span<const StepRecord> records);
  /// Removes what is known of steps after `step`, which come otherwise: records, digests, and
  /// validation losses, except those of checkpoints in place. Synced.
  Status take_back(std::int64_t step);
  /// Appends to the journal of events: started, resumed, saved, failed …. `kind` has no blanks.
  /// Keeps the newest 10,000, dropping likewise. Buffered.
  Status log_event(std::string_view kind, std::string_view text);

  /// Compares the entries with the directory by name, like open() but without known manifests:
  /// remains of an interrupted save are adopted or dropped. See report().
  Status look_again();

  /// Discards the entries and rebuilds them from the manifests in place. Validation losses and the
  /// history of retired checkpoints are kept as far as the old chain proves them. Synced.
  Status rebuild(const std::string& reason);

  /// Committed and retired entries, by step. Borrowed until the next change.
  [[nodiscard]] const std::vector<IndexEntry>& entries() const { return known_.entries.all(); }
  /// Entries in place, by step.
  [[nodiscard]] std::vector<IndexEntry> committed() const;
  /// Notes by step. Borrowed until the next change.
  [[nodiscard]] const std::map<std::int64_t, IndexNote>& notes() const { return known_.notes; }
  /// "<sequence>:<digest>" of the last change; empty: none.
  [[nodiscard]] std::string head() const;
  /// Findings and actions of opening.
  [[nodiscard]] const ReconcileReport& report() const { return report_; }

 private:
  CheckpointIndex(storage::KvStore& store, std::filesystem::path checkpoints, RunIdentity identity)
      : store_(&store), checkpoints_(std::move(checkpoints)), identity_(std::move(identity)) {}

  Status load_journals();
  Status finalize_notes();
  Status reconcile(const LocatedManifests& placed, bool seen);
  Status drop_legacy();
  /// `seen`: skip the manifests of recorded checkpoints.
  Status adopt(const LocatedManifests& placed, bool seen);
  Status number_digests();
  Status rebuild_from(const LocatedManifests& placed, const std::string& reason);
  Status write(const std::vector<IndexChange>& changes, storage::WriteBatch batch);
  void add_event(storage::WriteBatch& batch, std::string_view kind, std::string_view text);
  /// Journals are trimmed by this many records at a time: each trim reads from the end of the last
  /// one.
  static constexpr std::int64_t kTrimAtOnce = 500;
  /// Removes keys below `first_kept` from a journal whose first number is `oldest`.
  Status trim(std::string_view prefix, std::int64_t& oldest, std::int64_t first_kept,
              storage::WriteBatch& batch, std::int64_t at_once = kTrimAtOnce);
  Status trim_digests(std::int64_t& oldest, std::int64_t first_kept, storage::WriteBatch& batch);

  storage::KvStore* store_;
  std::filesystem::path checkpoints_;
  RunIdentity identity_;
  IndexContent known_;
  ReconcileReport report_;
  std::int64_t oldest_step_ = 0;
  std::int64_t newest_step_ = 0;
  std::int64_t oldest_digest_ = 1;  ///< Sequence number, like next_digest_.
  std::int64_t next_digest_ = 1;
  std::int64_t oldest_event_ = 1;
  std::int64_t next_event_ = 1;
};

/// Index together with its store.
struct OpenedIndex {
  std::unique_ptr<storage::KvStore> store;
  CheckpointIndex index;
};

/// Amount of an index that is read on opening.
enum class IndexReading : std::uint8_t {
  /// Data that a start needs: entries, notes, and the ends of the journals of steps and events.
  /// Damage of old steps is found when they are read, or rewritten by the store.
  needed,
  all,  ///< Every record: after a write that the store rejected.
};

/// Opens the RocksDB index in `directory`, creating it if missing. An index that is damaged, or of
/// an unknown format, is kept as <directory>.aside-<n> and rebuilt from the manifests and its
/// readable part; see report(). Blocks. REQUIRES: the run's lock is held. Errors: open in another
/// process, not writable (user); disk full, broken or unreachable (failure): the index is
/// unchanged.
Result<OpenedIndex> open_index(const std::filesystem::path& directory,
                               const std::filesystem::path& checkpoints,
                               IndexReading reading = IndexReading::needed,
                               const RunIdentity& identity = {});

}  // namespace train::checkpoint
