#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "actors/snapshot_actor.hpp"
#include "checkpoint/index.hpp"
#include "checkpoint/manifest.hpp"
#include "engine/base/result.hpp"
#include "engine/rank_engine.hpp"
#include "storage/kv_store.hpp"

namespace train::actors {

/// The checkpoints of a run on disk, with their index.
///
/// Threading: open() and restore() before the actors run, write() and record() on the disk stream.
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

  /// Restores the newest whole checkpoint into `engine`; returns its step, 0 if there is none.
  /// Damaged ones in front of it are set aside and logged.
  Result<std::int64_t> restore(engine::RankEngine& engine);

  Result<WrittenCheckpoint> write(std::int64_t step, std::span<const engine::StateView> state);
  Status record(std::int64_t step);

 private:
  explicit CheckpointHome(const Options& options) : options_(options) {}
  Status open_index();

  Options options_;
  std::unique_ptr<storage::KvStore> store_;
  std::optional<checkpoint::CheckpointIndex> index_;
  std::map<std::int64_t, std::string> manifest_digests_;  ///< Written, not recorded yet.
};

}  // namespace train::actors
