#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::checkpoint {

inline constexpr std::int64_t kManifestVersion = 2;  ///< Version written; version 1 can still be
                                                     ///< read.
inline constexpr const char* kManifestFileName = "manifest.json";

/// Largest manifest accepted, so that a hostile one costs neither time nor memory.
inline constexpr std::uint64_t kManifestTextLimit = std::uint64_t{60} << 20;
inline constexpr std::size_t kFileRecordLimit = 65'536;
inline constexpr std::size_t kTensorRecordLimit = 131'072;

struct FileRecord {
  std::string name;  ///< Relative to the checkpoint's directory.
  std::uint64_t size_bytes = 0;
  std::string digest{};
};

/// Rows [first_row, first_row + rows) of dimension 0 of a tensor, held by one file. A scalar (empty
/// shape) counts as one row.
struct TensorRecord {
  std::string name;
  std::string dtype = "F32";
  std::vector<std::int64_t> shape;  ///< Shape of the whole tensor.
  std::string file;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::string digest{};           ///< Digest of these rows' bytes.
  std::uint64_t block_bytes = 0;  ///< Bytes per block; 0: no blocks (version 1).
  std::string blocks{};           ///< Digests of the blocks of these bytes.
};

/// One rank's part of a checkpoint and of its manifest.
struct ShardRecord {
  FileRecord file;
  std::vector<TensorRecord> tensors;
};

/// State of a run at a step: the caller's part of a manifest.
struct ManifestFields {
  std::int64_t step = 0;    ///< Finished optimizer steps; also the next step's number.
  std::int64_t tokens = 0;  ///< Training tokens read so far.
  std::int64_t lanes = 0;
  std::int64_t micro_batch = 0;
  std::string kernel_set;  ///< Kernel set that computed it: resuming on another one changes the
                           ///< bits.
  /// data::token_fingerprint() of the run's data at that time; empty in checkpoints of earlier
  /// versions.
  std::string data_fingerprint = {};
  std::string run_id = {};     ///< RunIdentity::id; empty in checkpoints of earlier versions.
  std::string config_text;     ///< The resolved configuration.
  std::string weights_digest;  ///< Digest of the model's weights, independent of sharding.
  std::string index_head;      ///< CheckpointIndex::head() before this checkpoint; may be empty.
};

/// Table of contents of a checkpoint; written last, so its presence proves that the rest is there
/// (CK-1).
struct Manifest {
  std::int64_t version = kManifestVersion;
  ManifestFields fields;
  std::string config_digest;          ///< Digest of fields.config_text.
  std::vector<FileRecord> files;      ///< One per writing rank.
  std::vector<TensorRecord> tensors;  ///< Sorted by name, then first_row.
  std::string text_digest;            ///< Digest of the text it was parsed from; otherwise empty.
};

/// Text of manifest.json: JSON that contains a digest of its own bytes (CK-5).
[[nodiscard]] std::string manifest_text(const Manifest& manifest);

/// `place` names the file in errors. For any text: no recursion, memory proportional to it. Errors
/// (failure): damaged, members missing or of the wrong type, names that are not plain file names,
/// rows of a tensor not covered exactly once, inconsistent blocks; (user) an intact manifest of
/// another format version.
Result<Manifest> parse_manifest(std::string_view text, std::string_view place);

/// Empty if `tensors` keep the limits and, sorted by name and first_row, cover each tensor's rows
/// exactly once; otherwise the first defect.
[[nodiscard]] std::string coverage_defect(std::span<const TensorRecord> tensors);

/// Record as JSON, sent from the rank that wrote the shard to the publisher.
[[nodiscard]] std::string shard_text(const ShardRecord& shard);
/// Errors (failure): not a shard's text.
Result<ShardRecord> parse_shard(std::string_view text);

/// Manifest of a directory, or its defect (one line).
struct ManifestFinding {
  std::optional<Manifest> manifest;
  std::string damage;
};

/// Reads the manifest of a checkpoint's directory, not its tensors. A manifest that is missing,
/// damaged or of another step than the directory's name is a finding, not an error. Follows no
/// link. Blocks. Errors: no permission or another format version (user), the disk (failure).
Result<ManifestFinding> examine_manifest(const std::filesystem::path& checkpoint);

/// examine_manifest() for callers that need the manifest: damage is a failure that names the
/// directory.
Result<Manifest> read_manifest(const std::filesystem::path& checkpoint);

// Blocks: parts of a record's bytes with their own digests.

inline constexpr std::uint64_t kBlockLimitBytes = std::uint64_t{1} << 20;

/// Block size for a tensor: a 256th of the tensor, but at least 4 KiB and at most 1 MiB. So reading
/// an eighth of its rows reads at most a sixteenth more, and the manifest does not grow with the
/// number of ranks.
[[nodiscard]] std::uint64_t block_size(std::uint64_t tensor_bytes);

/// Short digests of the blocks of `rows`, 16 hexadecimal digits each; the last block may be
/// shorter.
[[nodiscard]] std::string block_digests(std::span<const std::byte> rows, std::uint64_t block_bytes);

/// True if `bytes`, which begin at block `first` of a record, match its block digests. REQUIRES: a
/// record with blocks; `bytes` end at a block's end.
[[nodiscard]] bool blocks_match(const TensorRecord& record, std::uint64_t first,
                                std::span<const std::byte> bytes);

/// Shape of a tensor with so many rows.
[[nodiscard]] std::vector<std::int64_t> rows_shape(std::vector<std::int64_t> shape,
                                                   std::int64_t rows);

/// Bytes of a record's rows; nullopt if dtype or shape are invalid.
[[nodiscard]] std::optional<std::uint64_t> rows_bytes(const TensorRecord& record);

/// Empty if the size of the record's rows is known and the number of its blocks, if any, matches.
[[nodiscard]] std::string blocks_defect(const TensorRecord& record);

}  // namespace train::checkpoint
