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

inline constexpr std::int64_t manifest_version = 2;  ///< Written; 1 is still read.
inline constexpr const char* manifest_file_name = "manifest.json";

/// What is read of a manifest, so that a hostile one takes neither time nor memory.
inline constexpr std::uint64_t manifest_text_limit = std::uint64_t{60} << 20;
inline constexpr std::size_t file_record_limit = 65'536;
inline constexpr std::size_t tensor_record_limit = 131'072;

struct FileRecord {
  std::string name;  ///< Within the checkpoint's directory.
  std::uint64_t size_bytes = 0;
  std::string digest{};
};

/// Rows [first_row, first_row + rows) of dimension 0 of a tensor, as one file holds them. A scalar
/// (empty shape) counts as one row.
struct TensorRecord {
  std::string name;
  std::string dtype = "F32";
  std::vector<std::int64_t> shape;  ///< Of the whole tensor.
  std::string file;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::string digest{};           ///< Of the bytes of these rows.
  std::uint64_t block_bytes = 0;  ///< 0: no blocks (version 1).
  std::string blocks{};           ///< Digests of blocks of so many of these bytes.
};

/// What one rank wrote of a checkpoint: its part of the manifest.
struct ShardRecord {
  FileRecord file;
  std::vector<TensorRecord> tensors;
};

/// What is known of a run at a step; the caller's part of a manifest.
struct ManifestFields {
  std::int64_t step = 0;    ///< Optimizer steps done; also the next step's number.
  std::int64_t tokens = 0;  ///< Training tokens read up to here.
  std::int64_t lanes = 0;
  std::int64_t micro_batch = 0;
  std::string kernel_set;  ///< The bits' origin: resuming on another set changes them.
  /// storage::token_fingerprint() of the data that the run was on when it was written; empty in
  /// checkpoints of earlier versions.
  std::string data_fingerprint = {};
  std::string run_id = {};     ///< RunIdentity::id; empty in checkpoints of earlier versions.
  std::string config_text;     ///< The resolved configuration.
  std::string weights_digest;  ///< Of the model's weights, however they are sharded.
  std::string index_head;      ///< CheckpointIndex::head() before this checkpoint; may be empty.
};

/// The table of contents of a checkpoint; written last, so its presence says that the rest is there
/// (CK-1).
struct Manifest {
  std::int64_t version = manifest_version;
  ManifestFields fields;
  std::string config_digest;          ///< Of fields.config_text.
  std::vector<FileRecord> files;      ///< One per rank that wrote.
  std::vector<TensorRecord> tensors;  ///< Sorted by name, then first_row.
  std::string text_digest;            ///< Of the text it was read from; empty if of none.
};

/// The text of manifest.json: JSON that carries a digest of its own bytes (CK-5).
[[nodiscard]] std::string manifest_text(const Manifest& manifest);

/// `place` names the file in errors. Whatever the text: no recursion, memory of its order.
/// Errors (failure): damaged, members missing or of the wrong type, names that are no plain file
/// names, rows of a tensor not covered exactly once, blocks that do not fit; (user) an intact
/// manifest of another format version.
Result<Manifest> parse_manifest(std::string_view text, std::string_view place);

/// Empty if `tensors` keep the limits and, sorted by name and first_row, cover each tensor's rows
/// exactly once; else the first defect.
[[nodiscard]] std::string coverage_defect(std::span<const TensorRecord> tensors);

/// The record as JSON, for the way from the rank that wrote the shard to who publishes.
[[nodiscard]] std::string shard_text(const ShardRecord& shard);
/// Errors (failure): not the text of a shard.
Result<ShardRecord> parse_shard(std::string_view text);

/// The manifest of a directory, or what is wrong with it (one line).
struct ManifestFinding {
  std::optional<Manifest> manifest;
  std::string damage;
};

/// Reads the manifest of a checkpoint's directory, not its tensors. One that is missing, damaged or
/// of another step than the directory's name says is a finding, not an error. Follows no link.
/// Blocks. Errors: no permission or another format version (user), the disk (failure).
Result<ManifestFinding> examine_manifest(const std::filesystem::path& checkpoint);

/// The same for who needs it: damage is a failure that names the directory.
Result<Manifest> read_manifest(const std::filesystem::path& checkpoint);

// Blocks: parts of a record's bytes with digests of their own.

inline constexpr std::uint64_t block_limit_bytes = std::uint64_t{1} << 20;

/// How long the blocks of a tensor are: a 256th of the tensor, but 4 KiB at least and 1 MiB at
/// most. So whoever reads an eighth of its rows reads at most a sixteenth more, and the manifest
/// does not grow with the number of ranks.
[[nodiscard]] std::uint64_t block_size(std::uint64_t tensor_bytes);

/// The short digests of the blocks of `rows`, 16 hexadecimal digits each; the last may be shorter.
[[nodiscard]] std::string block_digests(std::span<const std::byte> rows, std::uint64_t block_bytes);

/// Whether `bytes`, which begin at the block `first` of a record, have its blocks' digests.
/// REQUIRES: a record with blocks; `bytes` end where a block ends.
[[nodiscard]] bool blocks_match(const TensorRecord& record, std::uint64_t first,
                                std::span<const std::byte> bytes);

/// A tensor's shape with so many rows.
[[nodiscard]] std::vector<std::int64_t> rows_shape(std::vector<std::int64_t> shape,
                                                   std::int64_t rows);

/// Bytes of a record's rows; empty if dtype or shape do not allow to tell.
[[nodiscard]] std::optional<std::uint64_t> rows_bytes(const TensorRecord& record);

/// Empty if the record's rows have a size, and its blocks, if it has any, are so many.
[[nodiscard]] std::string blocks_defect(const TensorRecord& record);

}  // namespace train::checkpoint
