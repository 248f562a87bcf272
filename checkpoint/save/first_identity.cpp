#include "checkpoint/save/first_identity.hpp"

#include <utility>

#include "checkpoint/format/manifest.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

struct Placed {
  Candidate candidate;
  Manifest manifest;
};

/// Checkpoints in `place` with intact manifests, newest first.
Result<std::vector<Placed>> intact_in(const fs::path& place) {
  const auto found = TRAIN_TRY(list_checkpoints(place));
  std::vector<Placed> intact;
  for (const Candidate& candidate : found) {
    auto examined = TRAIN_TRY(examine_manifest(candidate.path));
    if (examined.manifest) {
      intact.push_back({candidate, std::move(*examined.manifest)});
    }
  }
  return intact;
}

}  // namespace

Result<GivenIdentity> give_identity(const fs::path& run, const std::vector<fs::path>& places,
                                    const std::string& fresh_id) {
  auto known = TRAIN_TRY(read_identity(run));
  if (known) {
    return GivenIdentity{.identity = std::move(*known), .adopted = {}};
  }
  GivenIdentity given{.identity = {}, .given = true, .adopted = {}};
  for (const fs::path& place : places) {
    const auto intact = intact_in(place);
    if (!intact && place != places.front()) {
      continue;  // Unreadable files of another place are left to the search.
    }
    TRAIN_RETURN_IF_ERROR(intact);
    for (const Placed& placed : *intact) {
      const std::string& named = placed.manifest.fields.run_id;
      if (named.empty()) {
        given.adopted.push_back(placed.candidate.path.string());
        given.identity.adopted.push_back(placed.manifest.text_digest);
      } else if (given.identity.id.empty() && place == places.front()) {
        given.identity.id = named;
      }
    }
  }
  if (given.identity.id.empty()) {
    given.identity.id = fresh_id;
  }
  TRAIN_RETURN_IF_ERROR(write_identity(run, given.identity));
  return given;
}

Status check_all(const fs::path& place, const RunIdentity& identity) {
  const auto found = TRAIN_TRY(list_checkpoints(place));
  for (const Candidate& candidate : found) {
    const auto examined = examine_manifest(candidate.path);
    if (examined && examined->manifest) {
      TRAIN_RETURN_IF_ERROR(check_identity(candidate.path, *examined->manifest, identity));
    }
  }
  return {};
}

Result<bool> rename_former(const Locations& places, const RunIdentity& identity) {
  const fs::path own = places.local.parent_path();
  const fs::path former = places.former.parent_path();
  if (places.former.empty() || !is_gone(own) || is_gone(places.former)) {
    return false;
  }
  const Locations before{.project = places.project, .local = places.former};
  if (!prove_local(before) || !check_all(places.former, identity)) {
    return false;  // It belongs to another run or user, and stays.
  }
  TRAIN_RETURN_IF_ERROR(storage::rename_durably(former, own));
  return true;
}

}  // namespace train::checkpoint
