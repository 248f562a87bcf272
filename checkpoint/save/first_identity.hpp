#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/save/locations.hpp"

// Assignment of a run's identity, and handling of a local place that belongs to another run.
namespace train::checkpoint {

struct GivenIdentity {
  RunIdentity identity;
  bool given = false;                ///< Given now; otherwise the run already had it.
  std::vector<std::string> adopted;  ///< Checkpoints of earlier versions that were adopted.
};

/// Identity of the run in directory `run`. A run without one gets that of its newest checkpoint
/// that has one (its file was lost), otherwise `fresh_id`; its present checkpoints without one, in
/// `places`, are adopted: only once, as it has an identity from then on. Durable on return. Blocks.
/// Errors: those of the directories and of the manifests in the project's place. REQUIRES: the
/// run's lock is held.
[[nodiscard]] Result<GivenIdentity> give_identity(const std::filesystem::path& run,
                                                  const std::vector<std::filesystem::path>& places,
                                                  const std::string& fresh_id);

/// Errors (user): a checkpoint in the directory `place` belongs to another run; names it. Damaged
/// or unreadable manifests are left to the search. Blocks.
[[nodiscard]] Status check_all(const std::filesystem::path& place, const RunIdentity& identity);

/// Renames a local place of earlier versions, named after the run's path with its links, to the
/// current name, if all of it is the run's and it has no other; returns true if it did.
[[nodiscard]] Result<bool> rename_former(const Locations& places, const RunIdentity& identity);

}  // namespace train::checkpoint
