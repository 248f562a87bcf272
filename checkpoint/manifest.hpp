#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.hpp"

namespace train::checkpoint {

inline constexpr std::int64_t manifest_version = 1;
inline constexpr const char* manifest_file_name = "manifest.json";

struct FileRecord {
  std::string name;  ///< Within the checkpoint's directory.
  std::uint64_t size_bytes = 0;
  std::string digest;
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
  std::string digest;  ///< Of the bytes of these rows.
};

/// What is known of a run at a step; the caller's part of a manifest.
struct ManifestFields {
  std::int64_t step = 0;    ///< Optimizer steps done; also the next step's number.
  std::int64_t tokens = 0;  ///< Training tokens read up to here.
  std::int64_t lanes = 0;
  std::int64_t micro_batch = 0;
  std::string kernel_set;      ///< The bits' origin: resuming on another set changes them.
  std::string config_text;     ///< The resolved configuration.
  std::string weights_digest;  ///< Of the model's weights, however they are sharded.
  std::string index_head;      ///< CheckpointIndex::head() before this checkpoint; may be empty.
};

/// The table of contents of a checkpoint; written last, so its presence says that the rest is there
/// (CK-1).
struct Manifest {
  ManifestFields fields;
  std::string config_digest;  ///< Of fields.config_text.
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  ///< Sorted by name, then first_row.
};

/// The text of manifest.json: JSON that carries a digest of its own bytes (CK-5).
[[nodiscard]] std::string manifest_text(const Manifest& manifest);

/// `place` names the file in errors. Errors (failure): damaged, fields missing or of the wrong
/// type, rows of a tensor not covered exactly once; (user) an intact manifest of another format
/// version.
Result<Manifest> parse_manifest(std::string_view text, std::string_view place);

/// Empty if `tensors`, sorted by name and first_row, cover each tensor's rows exactly once; else
/// the first defect.
[[nodiscard]] std::string coverage_defect(std::span<const TensorRecord> tensors);

}  // namespace train::checkpoint
