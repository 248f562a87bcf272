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

/// Checkpoints in a directory, as described by their manifests. All calls block. Errors: the
/// directory, or an existing manifest, cannot be read (failure; no permission: user); a described
/// checkpoint belongs to another run (user).
class LocatedManifests {
 public:
  /// Reads names only. A missing directory holds none.
  static Result<LocatedManifests> list(const std::filesystem::path& checkpoints,
                                       RunIdentity identity = {});

  /// Candidates by step.
  [[nodiscard]] const std::vector<Candidate>& all() const { return placed_; }
  [[nodiscard]] bool has(std::int64_t step) const;

  /// Digest of the manifest's bytes, valid or not; nullopt: no manifest.
  static Result<std::optional<std::string>> digest_of(const Candidate& candidate);
  /// Entry that the index would have recorded when the manifest was written. nullopt: the manifest
  /// is missing, damaged, or of another step.
  [[nodiscard]] Result<std::optional<IndexEntry>> entry_at(const Candidate& candidate) const;

  struct Newest {
    std::int64_t step = 0;
    std::string digest;
    std::string index_head;
  };
  /// Newest one with a readable manifest.
  [[nodiscard]] Result<std::optional<Newest>> newest() const;

 private:
  std::vector<Candidate> placed_;
  RunIdentity identity_;
};

}  // namespace train::checkpoint
