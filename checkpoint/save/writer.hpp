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

/// Index of a shard within a checkpoint.
struct Shard {
  std::int64_t index = 0;  ///< The rank.
  std::int64_t count = 1;  ///< Ranks.
};

struct WriteOutcome {
  std::filesystem::path path;   ///< Published directory.
  Manifest manifest;            ///< Manifest of the checkpoint that is now in place.
  std::string manifest_digest;  ///< Digest of the bytes of its manifest.json.
  bool already_there = false;   ///< An intact checkpoint of that step existed; nothing was written.
};

/// Manifest with its text.
struct ManifestDraft {
  Manifest manifest;
  std::string text;
};

/// Makes the manifest of these shards. Errors (failure): they do not cover their tensors exactly
/// once; it would be too long to be read.
[[nodiscard]] Result<ManifestDraft> draft_manifest(const ManifestFields& fields,
                                                   std::span<const ShardRecord> shards);

/// Checkpoint under construction that ranks have written their shards into: incoming_path() (CK-1,
/// CK-2).
///
/// Threading: one owner. Every call blocks on the disk: for an I/O thread. Destroyed without
/// publish(), the directory is removed.
class IncomingCheckpoint {
 public:
  IncomingCheckpoint(const std::filesystem::path& checkpoints, const std::string& tag,
                     std::int64_t step);
  IncomingCheckpoint(IncomingCheckpoint&& other) noexcept
      : path_(std::exchange(other.path_, {})), target_(std::move(other.target_)) {}
  IncomingCheckpoint& operator=(IncomingCheckpoint&&) = delete;
  ~IncomingCheckpoint() { discard(); }

  /// Writes the manifest, then renames the directory into place: the instant from which the
  /// checkpoint exists. An existing intact checkpoint wins; a damaged one is set aside. Errors
  /// (failure): a file that is missing or of the wrong size; an unreadable existing checkpoint; the
  /// disk. The shards remain after an error, so that it may be called again.
  Result<WriteOutcome> publish(ManifestDraft draft);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path target_;
};

/// Directory in which the ranks of a run write a checkpoint before it is published; `tag`
/// distinguishes runs.
[[nodiscard]] std::filesystem::path incoming_path(const std::filesystem::path& checkpoints,
                                                  const std::string& tag, std::int64_t step);

/// Writes one rank's rows into `incoming`, creating it if missing: durable on return. Borrows the
/// views' bytes for the call; views without rows are skipped. Blocks.
[[nodiscard]] Result<ShardRecord> write_shard(const std::filesystem::path& incoming,
                                              std::span<const engine::StateView> state,
                                              Shard shard);

}  // namespace train::checkpoint
