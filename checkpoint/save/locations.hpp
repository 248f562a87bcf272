#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/descriptor.hpp"
#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "engine/state_view.hpp"
#include "storage/rsync.hpp"

namespace train::checkpoint {

/// Where the checkpoints of a run are.
struct Locations {
  std::filesystem::path project;     ///< Where they are published: seen by every node.
  std::filesystem::path local = {};  ///< The node's own, written first; empty: one place.
  /// Where earlier versions had the local one, by a name with links in it; empty: there.
  std::filesystem::path former = {};

  [[nodiscard]] bool two() const { return !local.empty(); }
};

/// Opens the local place, or `below` in it: its directory in local_directory() and all below that
/// are this user's alone (ST-11, storage::open_private_directory()). Those that are missing are
/// made. Errors (user): somebody else's are there, or a link. REQUIRES: places.two().
[[nodiscard]] Result<Descriptor> open_local(const Locations& places,
                                            const std::filesystem::path& below = {});
/// The same, once a start, of all that is in it.
[[nodiscard]] Status prove_local(const Locations& places);

/// Renames the local place of a run that begins, with all that another run left in it, and makes it
/// anew: nothing of another run's is used or removed. Returns what was done, for a log; "": nothing
/// was there. Errors: those of the disk. REQUIRES: prove_local().
[[nodiscard]] Result<std::string> set_local_aside(const Locations& places,
                                                  const RunIdentity& identity);

/// The directory that checkpoint.local_dir means: "auto" is `slurm_tmpdir` (empty: none), "none" is
/// none, all else is a path. Empty: none. Pure.
[[nodiscard]] std::filesystem::path local_directory(const std::string& local_dir,
                                                    const std::string& slurm_tmpdir);

/// The places of the run in directory `run`. The local one is
/// <local_directory>/actortrain-<run's name>-<8 digits of the digest of its path>/checkpoints. That
/// path is the one without links, however this process names it. Reads names alone.
[[nodiscard]] Locations places_of(const std::filesystem::path& run,
                                  const std::filesystem::path& local_directory);

/// A rank's shards on their way: one save after the other. Every call blocks on the disk; what an
/// error leaves behind goes with discard(). Threading: one stream.
class ShardCarrier {
 public:
  struct Options {
    Locations places;
    std::string tag;            ///< Of this start's checkpoints under construction.
    RunIdentity identity = {};  ///< The local place keeps no other run's, and removes none.
    bool begins = false;        ///< No step of the run is done: none is its own in a local place.
    std::int64_t rank = 0;
    std::int64_t ranks = 1;
    bool lowest_of_node = true;  ///< The rank that keeps the node's local place.
    storage::RsyncOptions rsync = {};
  };

  explicit ShardCarrier(Options options) : options_(std::move(options)) {}

  /// With two places the node's lowest rank makes the local one, proves it and removes what killed
  /// processes left there. Where the run begins, and all that is there is another's, that is set
  /// aside; returns what set_local_aside() says. Before the first write() of this start. Errors
  /// (user): those of open_local(), another run's checkpoint is there.
  [[nodiscard]] Result<std::string> prepare() const;
  /// Writes the rank's rows where they are written first.
  [[nodiscard]] Result<ShardRecord> write(std::int64_t step,
                                          std::span<const engine::StateView> state);
  /// Given up: the local place, if there is one, keeps no part of it that has no name.
  [[nodiscard]] Status discard(std::int64_t step) const;
  // The rest is for two places.
  /// All ranks have written: the node's lowest one adds the manifest and gives the local copy its
  /// name. Another checkpoint of that step there goes.
  [[nodiscard]] Status seal(std::int64_t step, const std::string& manifest) const;
  /// Copies what write() wrote last to the project's place, reads it back there and syncs it.
  /// REQUIRES: write(step) succeeded, and was the last one.
  [[nodiscard]] Status send(std::int64_t step) const;
  /// Published: the local place keeps this checkpoint and no older one.
  [[nodiscard]] Status finalize(std::int64_t step) const;

 private:
  Options options_;
  FileRecord written_;  // the shard written last
};

/// Publishes a whole checkpoint of the local place, the one of `manifest`, as it is: what was
/// sealed and not published when a run was cut short. On an error nothing of it is left in the
/// project's place. Blocks.
[[nodiscard]] Status publish_local(const Locations& places, const std::string& tag,
                                   const Candidate& local, const Manifest& manifest,
                                   const storage::RsyncOptions& rsync);

}  // namespace train::checkpoint
