#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/index/index_entry.hpp"

namespace train::checkpoint {

/// The checkpoints in a directory as their manifests describe them. All calls block. Errors: the
/// directory, or a manifest that is there, cannot be read (failure; no permission: user); what
/// describes a checkpoint finds another run's (user).
class LocatedManifests {
 public:
  /// Reads names only. A missing directory holds none.
  static Result<LocatedManifests> list(const std::filesystem::path& checkpoints,
                                       RunIdentity identity = {});

  /// By step.
  [[nodiscard]] const std::vector<Candidate>& all() const { return placed_; }
  [[nodiscard]] bool has(std::int64_t step) const;

  /// Digest of the bytes of the manifest, whatever they are; empty: there is no manifest.
  static Result<std::optional<std::string>> digest_of(const Candidate& candidate);
  /// What the index would have recorded of it, at the time the manifest was written. Empty: there
  /// is no manifest, or a damaged one, or one of another step.
  [[nodiscard]] Result<std::optional<IndexEntry>> entry_at(const Candidate& candidate) const;

  struct Newest {
    std::int64_t step = 0;
    std::string digest;
    std::string index_head;
  };
  /// The newest with a manifest that can be read.
  [[nodiscard]] Result<std::optional<Newest>> newest() const;

 private:
  std::vector<Candidate> placed_;
  RunIdentity identity_;
};

}  // namespace train::checkpoint
