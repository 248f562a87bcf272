#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/save/locations.hpp"

// How a run gets its identity, and what is done with a local place that is another's.
namespace train::checkpoint {

struct GivenIdentity {
  RunIdentity identity;
  bool given = false;                ///< Now; else the run had it.
  std::vector<std::string> adopted;  ///< Checkpoints of earlier versions that became the run's.
};

/// The identity of the run in directory `run`. One that has none gets that of its newest checkpoint
/// that names one (its file was lost), else `fresh_id`; checkpoints without one that it has now, in
/// `places`, become its own: once, as it has an identity from then on. Durable on return. Blocks.
/// Errors: those of the directories and of the manifests in the project's place.
/// REQUIRES: the run's lock is held.
[[nodiscard]] Result<GivenIdentity> give_identity(const std::filesystem::path& run,
                                                  const std::vector<std::filesystem::path>& places,
                                                  const std::string& fresh_id);

/// Errors (user): some checkpoint in the directory `place` is another run's; names it. Those whose
/// manifest is damaged, or cannot be read, are the search's. Blocks.
[[nodiscard]] Status check_all(const std::filesystem::path& place, const RunIdentity& identity);

/// Earlier versions named the local place after the run's path with the links in it. That one, if
/// there is one, all of it is the run's and it has no other, gets the name of today; true: it did.
[[nodiscard]] Result<bool> rename_former(const Locations& places, const RunIdentity& identity);

}  // namespace train::checkpoint
