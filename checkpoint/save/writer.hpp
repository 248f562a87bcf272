#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"
#include "engine/state_view.hpp"

namespace train::checkpoint {

/// Which of a checkpoint's shards.
struct Shard {
  std::int64_t index = 0;  ///< The rank.
  std::int64_t count = 1;  ///< Ranks.
};

struct WriteOutcome {
  std::filesystem::path path;   ///< The published directory.
  Manifest manifest;            ///< Of the checkpoint that is there now.
  std::string manifest_digest;  ///< Of the bytes of its manifest.json.
  bool already_there = false;   ///< A whole checkpoint of that step was found; nothing was written.
};

/// A manifest and its text.
struct ManifestDraft {
  Manifest manifest;
  std::string text;
};

/// The manifest of these shards. Errors (failure): they do not cover their tensors exactly once; it
/// would be longer than can be read.
[[nodiscard]] Result<ManifestDraft> draft_manifest(const ManifestFields& fields,
                                                   std::span<const ShardRecord> shards);

/// The checkpoint that ranks have written their shards into: incoming_path() (CK-1, CK-2).
///
/// Threading: one owner. Every call blocks on the disk: for an I/O thread. Dropped without
/// publish(): the directory is removed.
class IncomingCheckpoint {
 public:
  IncomingCheckpoint(const std::filesystem::path& checkpoints, const std::string& tag,
                     std::int64_t step);
  IncomingCheckpoint(IncomingCheckpoint&& other) noexcept
      : path_(std::exchange(other.path_, {})), target_(std::move(other.target_)) {}
  IncomingCheckpoint& operator=(IncomingCheckpoint&&) = delete;
  ~IncomingCheckpoint() { discard(); }

  /// Writes the manifest, then renames the directory into place: the one instant from which the
  /// checkpoint exists. A whole checkpoint already there wins; a damaged one is set aside.
  /// Errors (failure): a file that is not here with its size; a checkpoint there that cannot be
  /// read; the disk. After one the shards are still here, so that it may be called again.
  Result<WriteOutcome> publish(ManifestDraft draft);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path target_;
};

/// Where the ranks of a run write a checkpoint before it is published; `tag` tells runs apart.
[[nodiscard]] std::filesystem::path incoming_path(const std::filesystem::path& checkpoints,
                                                  const std::string& tag, std::int64_t step);

/// Writes one rank's rows into `incoming`, which is made if it is missing: durable on return.
/// Borrows the views' bytes for the call; views without rows are left out. Blocks.
[[nodiscard]] Result<ShardRecord> write_shard(const std::filesystem::path& incoming,
                                              std::span<const engine::StateView> state,
                                              Shard shard);

}  // namespace train::checkpoint
