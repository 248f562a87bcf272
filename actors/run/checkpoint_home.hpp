#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/index_actor.hpp"
#include "checkpoint/index.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"
#include "engine/base/result.hpp"
#include "engine/rank_engine.hpp"
#include "storage/kv_store.hpp"

namespace train::actors {

/// The checkpoints of a run on disk, with their index.
///
/// Threading: open() and find_newest() before the actors run, the rest on the disk stream.
/// All calls block. REQUIRES: the run's lock is held.
class CheckpointHome {
 public:
  struct Options {
    std::filesystem::path checkpoints;
    std::filesystem::path index;
    std::int64_t keep_last = 0;
    std::int64_t tokens_per_step = 0;
    checkpoint::ManifestFields fields;  ///< Step, tokens and digests are filled in per checkpoint.
  };

  /// Opens the index; a damaged one is made anew from the manifests (logged).
  static Result<std::unique_ptr<CheckpointHome>> open(const Options& options);

  /// The newest whole checkpoint, if there is one. Damaged ones in front of it are set aside and
  /// logged.
  Result<std::optional<checkpoint::Candidate>> find_newest();

  /// Makes a checkpoint of what the ranks have written into incoming_path(tag(), step).
  Result<WrittenCheckpoint> publish(std::int64_t step, const std::vector<ShardWritten>& shards);
  Status record(std::int64_t step);
  /// Removes what ranks have written of a checkpoint that will never be whole.
  void discard(std::int64_t step);
  /// Tells this run's unpublished checkpoints from leftovers of others.
  [[nodiscard]] const std::string& tag() const { return tag_; }

 private:
  explicit CheckpointHome(const Options& options) : options_(options) {}
  Status open_index();

  Options options_;
  std::unique_ptr<storage::KvStore> store_;
  std::optional<checkpoint::CheckpointIndex> index_;
  std::map<std::int64_t, std::string> manifest_digests_;  ///< Published, not recorded yet.
  std::string tag_;
};

/// Fills what the engine's rank keeps from the checkpoint in `directory`. Blocks. Errors: those of
/// checkpoint::restore().
Status restore_rank(const std::filesystem::path& directory, engine::RankEngine& engine);

}  // namespace train::actors
