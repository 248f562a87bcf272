#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/process/descriptor.hpp"
#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "engine/state_view.hpp"
#include "storage/rsync.hpp"

namespace train::checkpoint {

/// Locations of a run's checkpoints.
struct Locations {
  std::filesystem::path project;     ///< Published checkpoints: visible to every node.
  std::filesystem::path local = {};  ///< The node's own, written first; empty: only one place.
  /// Local place of earlier versions, whose name keeps links; empty: the same.
  std::filesystem::path former = {};

  [[nodiscard]] bool two() const { return !local.empty(); }
};

/// Opens the local place, or `below` in it: its directory in local_directory() and everything below
/// belong to this user alone (ST-11, storage::open_private_directory()). Missing directories are
/// created. Errors (user): one is a link or another user's. REQUIRES: places.two().
[[nodiscard]] Result<Descriptor> open_local(const Locations& places,
                                            const std::filesystem::path& below = {});
/// Checks ownership of everything in the local place, once per start.
[[nodiscard]] Status prove_local(const Locations& places);

/// Renames the local place of a new run, with everything another run left in it, and creates it
/// again: nothing of another run is used or removed. Returns a log text; "": nothing was there.
/// Errors: disk errors. REQUIRES: prove_local().
[[nodiscard]] Result<std::string> set_local_aside(const Locations& places,
                                                  const RunIdentity& identity);

/// Directory meant by checkpoint.local_dir: "auto" is `slurm_tmpdir` (empty: none), "none" is none,
/// everything else is a path. Empty: none. Pure.
[[nodiscard]] std::filesystem::path local_directory(const std::string& local_dir,
                                                    const std::string& slurm_tmpdir);

/// Places of the run in directory `run`. The local one is <local_directory>/actortrain-<run's
/// name>-<8 digits of the digest of its path>/checkpoints. The digest is of the path without links,
/// independent of how this process names it. Reads only names.
[[nodiscard]] Locations places_of(const std::filesystem::path& run,
                                  const std::filesystem::path& local_directory);

/// Moves a rank's shards, one save after the other. Every call blocks on the disk; discard()
/// removes what an error leaves behind. Threading: one stream.
class ShardCarrier {
 public:
  struct Options {
    Locations places;
    std::string tag;            ///< Tag of this start's checkpoints under construction.
    RunIdentity identity = {};  ///< The local place keeps and removes only checkpoints of this run.
    bool begins = false;        ///< No step of the run is done: no checkpoint in a local place
                                ///< belongs to it.
    std::int64_t rank = 0;
    std::int64_t ranks = 1;
    bool lowest_of_node = true;  ///< This rank manages the node's local place.
    storage::RsyncOptions rsync = {};
  };

  explicit ShardCarrier(Options options) : options_(std::move(options)) {}

  /// With two places, the node's lowest rank creates the local one, checks its owner and removes
  /// remains of killed processes. If the run begins, and everything there belongs to another run,
  /// that is set aside; returns the text of set_local_aside(). Call before the first write() of
  /// this start. Errors (user): those of open_local(), another run's checkpoint is there.
  [[nodiscard]] Result<std::string> prepare() const;
  /// Writes the rank's rows to the first place.
  [[nodiscard]] Result<ShardRecord> write(std::int64_t step,
                                          std::span<const engine::StateView> state);
  /// Gives the step up: the local place, if any, keeps no unnamed part of it.
  [[nodiscard]] Status discard(std::int64_t step) const;
  // The members below are for two places.
  /// Called when all ranks have written: the node's lowest one adds the manifest and gives the
  /// local copy its name. Replaces another checkpoint of that step.
  [[nodiscard]] Status seal(std::int64_t step, const std::string& manifest) const;
  /// Copies the last write() to the project's place, reads it back there and syncs it. REQUIRES:
  /// write(step) succeeded, and was the last one.
  [[nodiscard]] Status send(std::int64_t step) const;
  /// Called after publication: the local place keeps this checkpoint and no older one.
  [[nodiscard]] Status finalize(std::int64_t step) const;

 private:
  Options options_;
  FileRecord written_;  // Shard written last.
};

/// Publishes the complete checkpoint of `manifest` in the local place: sealed but not published
/// when a run was interrupted. On an error nothing of it remains in the project's place. Blocks.
[[nodiscard]] Status publish_local(const Locations& places, const std::string& tag,
                                   const Candidate& local, const Manifest& manifest,
                                   const storage::RsyncOptions& rsync);

}  // namespace train::checkpoint
