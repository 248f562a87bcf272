#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/index/index.hpp"
#include "checkpoint/load/reader.hpp"
#include "checkpoint/save/locations.hpp"
#include "checkpoint/save/retention.hpp"
#include "checkpoint/save/writer.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "run/directory/run_events.hpp"
#include "run/store/index_work.hpp"
#include "run/store/run_index.hpp"

namespace train::run {

/// Checkpoints of a run on disk, with their index: the head's view of both locations.
///
/// A checkpoint is published only after the journal of its steps is written (CK-7); old ones are
/// also retired while the index cannot be written.
///
/// Threading: open(), find_start(), take_back() and, when the actors have ended, event() from the
/// main thread; restored() there or on the disk stream before the first save; the rest on the disk
/// stream. All calls block. REQUIRES: the run's lock is held.
class CheckpointStore {
 public:
  /// Unique among all starts that may share a directory.
  [[nodiscard]] static std::string unique_tag();

  /// Dependencies that a simulation replaces: RocksDB, the clock and rsync.
  struct Surroundings {
    std::function<Result<checkpoint::OpenedIndex>(
        const std::filesystem::path& index, const std::filesystem::path& checkpoints,
        checkpoint::IndexReading reading, const checkpoint::RunIdentity& identity)>
        open_index = checkpoint::open_index;
    std::function<std::string()> make_tag = unique_tag;
    std::function<std::string()> make_run_id = checkpoint::new_run_id;
    storage::RsyncOptions rsync = {};  ///< Except `stop`.
  };

  struct Options {
    checkpoint::Locations locations;
    std::filesystem::path index;
    checkpoint::RetentionRule keep;
    std::int64_t tokens_per_step = 0;
    std::shared_ptr<EventLog> events = {};  ///< Receives events of saves; may be null.
    checkpoint::ManifestFields fields;  ///< Step, tokens and digests are filled in per checkpoint.
    checkpoint::RunIdentity identity = {};  ///< Never touches other runs' checkpoints.
    /// True if all ranks are on this node: the local location then holds complete checkpoints.
    bool one_node = true;
    /// True for a new run: the local location's content is of an erased run, and is set aside.
    bool new_run = false;
    /// Error if another process has taken the run over; checked before each publication and
    /// removal.
    std::function<Status()> still_ours = [] { return Status(); };
    Surroundings surroundings = {};
  };

  /// Opens the index; a damaged one is rebuilt from the manifests (logged). Errors (user): a
  /// location has another run's checkpoint; the local location is not owned by this user alone.
  static Result<std::unique_ptr<CheckpointStore>> open(const Options& options);

  /// Finds the newest checkpoint that is complete as far as `depth` checks; nullopt if there is
  /// none. The path is in the local location if that has a copy; every byte of the project's copy
  /// is then read here. A newer checkpoint that only the local location has is published first. In
  /// both locations damaged checkpoints are set aside and logged, and leftovers of killed runs
  /// removed. No other checkpoint is removed before restored(). Errors (failure): there were
  /// checkpoints and none is complete (lists both locations); a checkpoint newer than the newest
  /// complete one cannot be read: resuming would silently lose its steps.
  Result<std::optional<checkpoint::Candidate>> find_start(
      checkpoint::Depth depth = checkpoint::Depth::files);

  /// True if the checkpoint of the last find_start() was computed with another kernel set: steps
  /// after it get other bits.
  [[nodiscard]] bool other_kernels() const { return other_kernels_; }

  /// Marks the checkpoint of find_start() as complete: every rank has restored it. Retires old ones
  /// by the rule; the local location keeps its copy of the restored one. Failures are logged.
  void restored();

  /// Reads every byte of a checkpoint that a rank reports as damaged or unreadable. If it is
  /// damaged, sets it aside, logs it and returns true. Also returns true if a copy in the local
  /// location cannot be read and the project's location has one: the local copy is then left alone.
  /// Errors: it cannot be read or renamed; it stays.
  Result<bool> set_aside_if_damaged(const checkpoint::Candidate& doubted);

  /// Finds the newest checkpoint in place by its name, for a run that resumes from a newer state in
  /// memory and reads no checkpoint. Removes leftovers of interrupted saves. The local location is
  /// left as it is; the next save cleans it up. Errors: the directory's.
  Result<std::optional<checkpoint::Candidate>> find_placed();

  /// Drops the state of saves under way, and compares the index with the directory. REQUIRES: the
  /// ranks that made them have ended. An index that cannot be written now is logged.
  void forget_saves();

  /// Bundles these calls for the index actor; borrows this.
  [[nodiscard]] IndexWork index_work();

  /// Reads the journal's records of these steps; empty if the index cannot be read. Blocks.
  [[nodiscard]] std::vector<checkpoint::StepRecord> steps(std::int64_t first,
                                                          std::int64_t last) const;
  /// Bytes of all checkpoints except the newest: an upper bound on the space make_room() frees.
  [[nodiscard]] std::uint64_t retirable_bytes() const;
  /// Number of checkpoints in place.
  [[nodiscard]] std::int64_t committed_count() const;

  // Parts of index_work():
  Status set_state(std::int64_t step, checkpoint::CheckpointState state);
  /// Returns the text of the manifest that publish() will use.
  Result<std::string> seal(std::int64_t step, const std::vector<ShardWritten>& shards);
  /// Makes a checkpoint from the shards in incoming_path(project, tag(), step). On a full disk it
  /// makes room and retries once.
  Result<WrittenCheckpoint> publish(std::int64_t step, const std::vector<ShardWritten>& shards);
  /// Records the published checkpoint, then retires by the rule. Failures to retire are logged.
  Status record(std::int64_t step);
  Status discard(std::int64_t step, bool local);
  /// Frees space after the save of `step` has met a full disk. Retires the checkpoints that the
  /// rule would retire after this save, except the newest known to be complete; retires none if
  /// none is known to be. If the rule would retire none, the oldest of `keep_last`; if there are
  /// none, those that it keeps as the best. Returns the number retired; failures to retire are
  /// logged.
  std::int64_t make_room(std::int64_t step);
  /// Queues steps, and writes the whole queue, remarks included. On an error some stay queued.
  Status journal(std::span<const checkpoint::StepRecord> steps);
  /// Removes what is known of the steps after `step`, before they are computed again with other
  /// keys, data or kernels. On an error this stays queued, ahead of every later change.
  Status take_back(std::int64_t step);
  /// Notes the validation loss of the weights after `step`. On an error the loss stays queued,
  /// unless the step is taken back. While the index is closed the loss is queued without an error:
  /// on a full disk, opening takes as long as at a start, and only journal() tries it.
  Status evaluated(std::int64_t step, double validation_loss);
  /// Appends a line to events.jsonl.
  void note(std::int64_t step, const char* kind);

  /// Appends to the index's events of the run. Queues as evaluated() does.
  Status event(std::string_view kind, std::string_view text);
  /// Identifies this start's unpublished checkpoints; other tags are leftovers.
  [[nodiscard]] const std::string& tag() const { return tag_; }
  [[nodiscard]] const checkpoint::RunIdentity& identity() const { return options_.identity; }
  [[nodiscard]] const checkpoint::Locations& locations() const { return options_.locations; }

 private:
  explicit CheckpointStore(const Options& options);
  Result<checkpoint::ManifestDraft> draft(std::int64_t step,
                                          const std::vector<ShardWritten>& shards);
  /// Result of searching a location, with the checkpoints left in place there, newest first.
  struct Search {
    Result<checkpoint::SearchReport> report;
    std::vector<checkpoint::Candidate> placed = {};

    [[nodiscard]] std::int64_t newest_left() const {
      return placed.empty() ? -1 : placed.front().step;
    }
  };
  /// Logs each checkpoint that it sets aside.
  Result<Search> search(const std::filesystem::path& location, checkpoint::Depth depth);
  Result<Search> search_project(checkpoint::Depth depth);
  Result<Search> search_local(checkpoint::Depth depth);
  /// Errors (user): the index lists checkpoints. REQUIRES: none is in place.
  [[nodiscard]] Status never_published() const;
  static Status open_local(const Options& options);
  void publish_leftover(const checkpoint::FoundCheckpoint& found);
  void finalize_local(std::optional<std::int64_t> kept);
  void compare_kernels(const checkpoint::FoundCheckpoint& start);
  std::int64_t retire(std::span<const std::int64_t> steps);
  void retire_old();
  void log_unless(const Status& status, std::string_view what);

  Options options_;
  RunIndex index_;
  std::map<std::int64_t, checkpoint::ManifestDraft> drafts_;  ///< Sealed, not yet published.
  std::map<std::int64_t, checkpoint::IndexEntry> published_;  ///< Not yet recorded.
  std::optional<checkpoint::Candidate> start_;  ///< Result of find_start(), until restored().
  bool other_kernels_ = false;
  /// Newest checkpoint in the project's location known to be complete: restored or saved by ranks
  /// of this process, or copied there and read back.
  std::optional<std::int64_t> verified_;
  bool local_unreadable_ = false;  ///< A start could not read the local location.
  std::string tag_;
};

/// Restores the state of the engine's rank from the checkpoint in `directory`. Blocks; `stop` ends
/// it early. Errors: those of checkpoint::restore(), (damage) the manifest is damaged, (user) the
/// checkpoint belongs to another run than `identity`.
Status restore_rank(const std::filesystem::path& directory, engine::RankEngine& engine,
                    const std::stop_token& stop = {}, const checkpoint::RunIdentity& identity = {});

}  // namespace train::run
