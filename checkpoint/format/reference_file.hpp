#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace train::checkpoint {

/// Inputs that determine a reference's log-probabilities; they are valid only for equal keys.
struct ReferenceKey {
  std::string data = {};     ///< Fingerprint of the rows.
  std::string compute = {};  ///< precision.compute.
  /// Fingerprint of the initial weights; empty: unknown.
  std::string model = {};
  std::string kernel_set = {};     ///< See ManifestFields::kernel_set.
  std::int64_t training_rows = 0;  ///< Number of training rows covered, in the order of training.
  std::int64_t validation_rows = 0;
};

/// Log-probabilities of all documents of a run's data under its initial weights, stored in the
/// run's directory: the reference of a preference objective, for as long as the run continues.
struct ReferenceFile {
  ReferenceKey key;
  std::uint64_t weights_digest = 0;  ///< RankState::digest() of all ranks together.
  std::int64_t commands = 0;         ///< For an unfinished sweep: commands done.
  std::vector<double> values;        ///< By document; NaN: the document is in none of the rows.
};

/// Path in a run's directory.
[[nodiscard]] std::filesystem::path reference_path(const std::filesystem::path& run);

/// Path of an unfinished sweep's values, beside it.
[[nodiscard]] std::filesystem::path partial_reference_path(const std::filesystem::path& run);

/// Writes the file atomically (AtomicFile). Blocks. Errors: those of AtomicFile.
[[nodiscard]] Status write_reference(const std::filesystem::path& path, const ReferenceFile& file);

/// Blocks. Errors (user): missing; truncated or damaged; made with another key, or covering fewer
/// rows than `expected`. Each names the file, the difference, and the fix.
[[nodiscard]] Result<ReferenceFile> read_reference(const std::filesystem::path& path,
                                                   const ReferenceKey& expected);

/// Values of an unfinished sweep with this key; nullopt: there are none, or they are damaged or of
/// another key, and the sweep starts over. An empty `key.model` is not compared. Blocks.
[[nodiscard]] std::optional<ReferenceFile> read_partial_reference(const std::filesystem::path& path,
                                                                  const ReferenceKey& key);

}  // namespace train::checkpoint
