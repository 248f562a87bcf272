#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace train::checkpoint {

/// What log-probabilities of a reference depend on: they are of use to nobody for whom one differs.
struct ReferenceKey {
  std::string data = {};     ///< The fingerprint of the rows.
  std::string compute = {};  ///< precision.compute.
  /// What tells the weights that the run began with from others; empty: not known.
  std::string model = {};
  std::string kernel_set = {};     ///< As ManifestFields::kernel_set.
  std::int64_t training_rows = 0;  ///< That are covered, in the order of training.
  std::int64_t validation_rows = 0;
};

/// The log-probabilities of all documents of a run's data in its first weights, kept in the run's
/// directory: what a preference objective compares with, for as long as the run goes on.
struct ReferenceFile {
  ReferenceKey key;
  std::uint64_t weights_digest = 0;  ///< RankState::digest() of all ranks together.
  std::int64_t commands = 0;         ///< Of a sweep that is not over: those that are done.
  std::vector<double> values;        ///< By document; NaN: of none of the rows.
};

/// In a run's directory.
[[nodiscard]] std::filesystem::path reference_path(const std::filesystem::path& run);

/// What a sweep that is not over has come to, beside it.
[[nodiscard]] std::filesystem::path partial_reference_path(const std::filesystem::path& run);

/// Writes the file, whole or not at all (AtomicFile). Blocks. Errors: those of AtomicFile.
[[nodiscard]] Status write_reference(const std::filesystem::path& path, const ReferenceFile& file);

/// Blocks. Errors (user): no such file; torn or damaged; made with another key, or of fewer rows
/// than `expected` covers. Each names the file, what differs, and the fix.
[[nodiscard]] Result<ReferenceFile> read_reference(const std::filesystem::path& path,
                                                   const ReferenceKey& expected);

/// What a sweep with this key has come to; none: there is none, or it is damaged or of another
/// key, and a sweep begins anew. An empty `key.model` is not compared. Blocks.
[[nodiscard]] std::optional<ReferenceFile> read_partial_reference(const std::filesystem::path& path,
                                                                  const ReferenceKey& key);

}  // namespace train::checkpoint
