#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/shard_record.hpp"
#include "engine/state_view.hpp"

namespace train::checkpoint {

struct Shard {
  std::int64_t index = 0;
  std::int64_t count = 1;
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

/// A checkpoint under construction: `.incoming-<pid>-step-<n>` (CK-1, CK-2).
///
/// Threading: one object per process and step; shards may be written from several threads. Every
/// call blocks on the disk: for an I/O thread. Dropped without publish(): the directory is removed.
class IncomingCheckpoint {
 public:
  /// Creates `checkpoints` if missing. Errors: not writable (user), disk full (failure).
  static Result<IncomingCheckpoint> create(const std::filesystem::path& checkpoints,
                                           std::int64_t step);

  /// The one that ranks have written their shards into: incoming_path(checkpoints, tag, step).
  [[nodiscard]] static IncomingCheckpoint of_ranks(const std::filesystem::path& checkpoints,
                                                   const std::string& tag, std::int64_t step);

  IncomingCheckpoint(IncomingCheckpoint&& other) noexcept;
  IncomingCheckpoint& operator=(IncomingCheckpoint&& other) noexcept;
  IncomingCheckpoint(const IncomingCheckpoint&) = delete;
  IncomingCheckpoint& operator=(const IncomingCheckpoint&) = delete;
  ~IncomingCheckpoint();

  /// Writes one rank's rows to shard-<index>-of-<count>.safetensors, durably. Borrows the views'
  /// bytes for the call; views without rows are left out.
  [[nodiscard]] Result<ShardRecord> write_shard(std::span<const engine::StateView> state,
                                                Shard shard) const;

  /// Writes the manifest, then renames the directory into place: the one instant from which the
  /// checkpoint exists. A whole checkpoint already there wins; a damaged one is set aside.
  /// Errors (failure): a file that is not here with its size; a checkpoint there that cannot be
  /// read; the disk. After one the shards are still here, so that it may be called again.
  Result<WriteOutcome> publish(ManifestDraft draft);
  /// The same with draft_manifest() of these, and its errors.
  Result<WriteOutcome> publish(const ManifestFields& fields, std::span<const ShardRecord> shards);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  IncomingCheckpoint(std::filesystem::path path, std::filesystem::path target)
      : path_(std::move(path)), target_(std::move(target)) {}
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

/// Writes and publishes a checkpoint whose state is all here, as one shard. On an error nothing of
/// it is left. Blocks until it survives a power cut.
Result<WriteOutcome> write_checkpoint(const std::filesystem::path& checkpoints,
                                      const ManifestFields& fields,
                                      std::span<const engine::StateView> state);

/// Digest of the tensors whose names start with "model.", in the order of their names: name, shape,
/// bytes. REQUIRES: each of them is whole.
[[nodiscard]] std::string weights_digest(std::span<const engine::StateView> state);

}  // namespace train::checkpoint
