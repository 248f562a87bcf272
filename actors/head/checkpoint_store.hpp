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

#include "actors/head/index_actor.hpp"
#include "actors/head/report/run_events.hpp"
#include "actors/head/run_index.hpp"
#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/index/index.hpp"
#include "checkpoint/load/reader.hpp"
#include "checkpoint/save/locations.hpp"
#include "checkpoint/save/retention.hpp"
#include "checkpoint/save/writer.hpp"
#include "engine/rank/rank_engine.hpp"

namespace train::actors {

/// The checkpoints of a run on disk, with their index: the head's view of both locations.
///
/// A checkpoint is published only behind the journal of its steps (CK-7); old ones are retired also
/// while the index cannot be written.
///
/// Threading: open(), find_start() and, when the actors have ended, event() from the main thread;
/// restored() there or on the disk stream before the first save; the rest on the disk stream. All
/// calls block. REQUIRES: the run's lock is held.
class CheckpointStore {
 public:
  /// Unique among all starts that may ever share a directory.
  [[nodiscard]] static std::string unique_tag();

  /// What a simulation puts instead of RocksDB, the clock and rsync.
  struct Surroundings {
    std::function<Result<checkpoint::OpenedIndex>(
        const std::filesystem::path& index, const std::filesystem::path& checkpoints,
        checkpoint::IndexReading reading, const checkpoint::RunIdentity& identity)>
        open_index = checkpoint::open_index;
    std::function<std::string()> make_tag = unique_tag;
    std::function<std::string()> make_run_id = checkpoint::new_run_id;
    storage::RsyncOptions rsync = {};  ///< `stop` apart.
  };

  struct Options {
    checkpoint::Locations locations;
    std::filesystem::path index;
    checkpoint::RetentionRule keep;
    std::int64_t tokens_per_step = 0;
    std::shared_ptr<EventLog> events = {};  ///< Is told of saves; none: none is.
    checkpoint::ManifestFields fields;  ///< Step, tokens and digests are filled in per checkpoint.
    checkpoint::RunIdentity identity = {};  ///< No other run's checkpoint is used or removed.
    /// The local location holds complete checkpoints: all ranks are on this node.
    bool one_node = true;
    /// The run begins: what its local location holds is of one that was erased, and is set aside.
    bool new_run = false;
    /// Nobody has taken the run over: asked before each publication and each removal.
    std::function<Status()> still_ours = [] { return Status(); };
    Surroundings surroundings = {};
  };

  /// Opens the index; a damaged one is made anew from the manifests (logged). Errors (user): in a
  /// location is another run's checkpoint; the local one is not this user's alone.
  static Result<std::unique_ptr<CheckpointStore>> open(const Options& options);

  /// Where to go on: the newest checkpoint that is complete as far as `depth` looks, if there is
  /// one; its directory is in the local location if that has it, too, and every byte of the
  /// project's is then read here. A newer one that is only there is published first. Damaged ones
  /// are set aside and logged, leftovers of killed runs removed, in both locations. No other
  /// checkpoint goes before restored(). Errors (failure): there were checkpoints and none is
  /// complete (says what each location has); one that is newer than the newest complete one cannot
  /// be read: going on would lose its steps in silence.
  Result<std::optional<checkpoint::Candidate>> find_start(
      checkpoint::Depth depth = checkpoint::Depth::files);

  /// Every rank has restored what find_start() has found, so it is complete. What the rule lets go
  /// of is retired; the local location keeps what was restored, if it has it. Failures are logged.
  void restored();

  /// Reads every byte of a checkpoint that a rank says is damaged, or cannot be read. If it is
  /// damaged, it is set aside and logged, and true is returned; so it is where a copy in the local
  /// location cannot be read and the project's location has one: the local one is then left alone.
  /// Errors: it cannot be read or renamed; it stays.
  Result<bool> set_aside_if_damaged(const checkpoint::Candidate& doubted);

  /// The newest checkpoint in place, by its name: for a run that goes on from a newer state in
  /// memory, which reads none. Leftovers of saves that were cut short are removed. The local
  /// location is left as it is, the next save tidies it up. Errors: the directory's.
  Result<std::optional<checkpoint::Candidate>> find_placed();

  /// Drops what is known of saves under way, and compares the index with what is there. REQUIRES:
  /// the ranks that made them have ended. That the index cannot be written now is logged.
  void forget_saves();

  /// All of it for the index actor; borrows this.
  [[nodiscard]] IndexWork index_work();

  /// The journal's records of these steps; none where the index cannot be read. Blocks.
  [[nodiscard]] std::vector<checkpoint::StepRecord> steps(std::int64_t first,
                                                          std::int64_t last) const;
  /// Bytes of all checkpoints but the newest: what make_room() may free.
  [[nodiscard]] std::uint64_t retirable_bytes() const;

  // What index_work() is made of.
  Status set_state(std::int64_t step, checkpoint::CheckpointState state);
  /// The text of the manifest, which publish() will use as well.
  Result<std::string> seal(std::int64_t step, const std::vector<ShardWritten>& shards);
  /// Makes a checkpoint of the shards in incoming_path(project, tag(), step). On a full disk it
  /// makes room, and tries once more.
  Result<WrittenCheckpoint> publish(std::int64_t step, const std::vector<ShardWritten>& shards);
  /// Records what was published, then retires by the rule. That one could not be retired is logged.
  Status record(std::int64_t step);
  Status discard(std::int64_t step, bool local);
  /// The save of `step` has met a full disk. Retires what the rule would let go of if the save had
  /// succeeded, but for the newest checkpoint that is known to be complete, and all if none is.
  /// Returns how many went; what could not be retired is logged.
  std::int64_t make_room(std::int64_t step);
  /// Adds steps to those that wait, and writes all that waits, remarks too. An error: some wait.
  Status journal(std::span<const checkpoint::StepRecord> steps);
  /// Notes the validation loss of the weights after `step`. An error: the loss waits. Where the
  /// index is closed it waits without an error: opening takes as long on a full disk as at a start,
  /// and only journal() tries it.
  Status evaluated(std::int64_t step, double validation_loss);
  /// A line of events.jsonl.
  void note(std::int64_t step, const char* kind);

  /// Adds to the events of the run. Waits as evaluated() does.
  Status event(std::string_view kind, std::string_view text);
  /// Tells this start's unpublished checkpoints from leftovers of others.
  [[nodiscard]] const std::string& tag() const { return tag_; }
  [[nodiscard]] const checkpoint::RunIdentity& identity() const { return options_.identity; }
  [[nodiscard]] const checkpoint::Locations& locations() const { return options_.locations; }

 private:
  explicit CheckpointStore(const Options& options);
  Result<checkpoint::ManifestDraft> draft(std::int64_t step,
                                          const std::vector<ShardWritten>& shards);
  /// Result of searching a location, and the checkpoints that it left there, the newest first.
  struct Search {
    Result<checkpoint::SearchReport> report;
    std::vector<checkpoint::Candidate> placed = {};

    [[nodiscard]] std::int64_t newest_left() const {
      return placed.empty() ? -1 : placed.front().step;
    }
  };
  /// Logs what it sets aside.
  Result<Search> search(const std::filesystem::path& location, checkpoint::Depth depth);
  Result<Search> search_project(checkpoint::Depth depth);
  Result<Search> search_local(checkpoint::Depth depth);
  /// Errors (user): the index knows of checkpoints. REQUIRES: none is in place.
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
  std::map<std::int64_t, checkpoint::ManifestDraft> drafts_;  ///< Sealed, not published yet.
  std::map<std::int64_t, checkpoint::IndexEntry> published_;  ///< Not recorded yet.
  std::optional<checkpoint::Candidate> start_;  ///< What find_start() found, until restored().
  /// In the project's location: the newest known to be complete. Ranks of this process have
  /// restored or saved it, or it was copied there and read back.
  std::optional<std::int64_t> verified_;
  bool local_unreadable_ = false;  ///< What a start would read of the local location.
  std::string tag_;
};

/// Fills what the engine's rank keeps from the checkpoint in `directory`. Blocks; `stop` ends it
/// early. Errors: those of checkpoint::restore(), (damage) the manifest is damaged, (user) it is
/// not of the run with `identity`.
Status restore_rank(const std::filesystem::path& directory, engine::RankEngine& engine,
                    const std::stop_token& stop = {}, const checkpoint::RunIdentity& identity = {});

}  // namespace train::actors
