#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.hpp"
#include "storage/mapped_file.hpp"

namespace train::storage {

/// A tensor to write, row-major. Borrows `bytes`.
struct TensorBytes {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::string dtype = "F32";  ///< As in TensorEntry.
};

using TensorMetadata = std::map<std::string, std::string>;

struct WrittenFile {
  std::uint64_t size_bytes = 0;
  std::string digest;  ///< Of the whole file.
};

/// Writes `path` atomically (ST-1) in the safetensors format: tensors in the order given, header
/// padded so that the data starts at a multiple of 8. Blocks; needs no memory beyond the header.
/// REQUIRES: names are distinct UTF-8, dtypes known, bytes match shapes. Errors: as AtomicFile.
Result<WrittenFile> write_safetensors(const std::filesystem::path& path,
                                      std::span<const TensorBytes> tensors,
                                      const TensorMetadata& metadata = {});

struct TensorEntry {
  std::string name;
  std::string dtype;  ///< "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< Bytes from the start of the data section.
  std::uint64_t end = 0;
};

/// A safetensors file that passed every check (ST-3): whatever the bytes, parse() returns an error
/// or a table whose entries lie inside the file, cover it exactly once and fit their shapes. It
/// needs memory of the order of the header, which is at most 100 MB and at most the file.
class SafetensorsFile {
 public:
  /// Errors: those of MappedFile::open; a malformed file (failure; names file and reason).
  static Result<SafetensorsFile> open(const std::filesystem::path& path);
  static Result<SafetensorsFile> parse(MappedFile file);

  /// In the order of their bytes in the file.
  [[nodiscard]] std::span<const TensorEntry> entries() const { return entries_; }
  [[nodiscard]] const TensorMetadata& metadata() const { return metadata_; }
  /// nullptr if there is none of that name.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;
  /// A view into the mapped file: valid while this object lives.
  [[nodiscard]] std::span<const std::byte> bytes(const TensorEntry& entry) const;

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::uint64_t data_start_ = 0;
  std::vector<TensorEntry> entries_;
  TensorMetadata metadata_;
};

}  // namespace train::storage
