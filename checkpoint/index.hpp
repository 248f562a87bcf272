#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/result.hpp"
#include "storage/kv_store.hpp"

namespace train::checkpoint {

struct IndexEntry {
  std::int64_t step = 0;
  std::string directory;        ///< Name within the checkpoints directory.
  std::string state;            ///< "published".
  std::string manifest_digest;  ///< Of the bytes of manifest.json.
  std::int64_t recorded_s = 0;  ///< Unix time, seconds.
};

struct ReconcileReport {
  std::vector<std::string> adopted;  ///< Whole on disk, not recorded (a crash between the two).
  std::vector<std::string> dropped;  ///< Recorded, no longer on disk or no longer the same.
  bool rebuilt = false;              ///< The index was damaged, behind, or empty: made anew.
  std::string reason;                ///< Of the rebuild.
};

/// The record of published checkpoints (CK-7). The directory is the truth; the index is the memory
/// of what was promised, and detects when either forgot.
///
/// Every change appends to a journal whose entries are chained by digests; the head of the chain is
/// copied into the next manifest, so that a store that lost its newest entries is noticed.
/// Threading: one owner. Ownership: borrows `store`, which outlives this. All calls block.
class CheckpointIndex {
 public:
  /// Loads the index and reconciles it with `checkpoints`. Reads manifests, not tensors.
  /// Errors: those of the store and of reading the directory.
  static Result<CheckpointIndex> open(storage::KvStore& store, std::filesystem::path checkpoints);

  /// Records a published checkpoint; durable on return. Recording it twice is one record.
  Status record(std::int64_t step, const std::string& manifest_digest);
  /// Forgets one that was retired or set aside. Unknown: fine.
  Status forget(std::int64_t step);
  /// Throws the index away and makes it anew from the manifests on disk.
  Status rebuild(std::string reason);

  [[nodiscard]] const std::vector<IndexEntry>& entries() const { return entries_; }  ///< By step.
  [[nodiscard]] std::string head() const;  ///< "<sequence>:<digest>" of the last change.
  /// What open() found and did.
  [[nodiscard]] const ReconcileReport& report() const { return report_; }

 private:
  CheckpointIndex(storage::KvStore& store, std::filesystem::path checkpoints)
      : store_(&store), checkpoints_(std::move(checkpoints)) {}

  Status load();
  Status reconcile();
  Status append(const IndexEntry& entry, bool present);
  [[nodiscard]] bool holds_head(const std::string& head) const;

  storage::KvStore* store_;
  std::filesystem::path checkpoints_;
  std::vector<IndexEntry> entries_;
  std::vector<std::string> chain_;  ///< Digest after each journal entry.
  std::string damage_;
  ReconcileReport report_;
};

}  // namespace train::checkpoint
