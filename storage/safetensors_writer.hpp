#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/safetensors.hpp"

namespace train::storage {

/// Header entry of a tensor whose bytes are still to be written.
struct TensorHeading {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype = "F32";
};

struct WrittenFile {
  std::uint64_t size_bytes = 0;
  std::string digest;  ///< Digest of the whole file.
};

/// Writes a safetensors file, tensor by tensor, in pieces of any size, so that only one piece need
/// be in memory. Atomic as AtomicFile (ST-1): without commit() nothing remains. Threading: one
/// owner. Every call blocks on the disk.
class SafetensorsWriter {
 public:
  /// Writes the header; the data starts at a multiple of 8.
  /// REQUIRES: names are distinct UTF-8, dtypes known. Errors: as AtomicFile.
  static Result<SafetensorsWriter> create(const std::filesystem::path& path,
                                          std::span<const TensorHeading> tensors,
                                          const TensorMetadata& metadata = {});

  /// Appends tensor bytes, in the order of the headings. REQUIRES: no more than the headings
  /// announce. Errors: as AtomicFile.
  Status write(std::span<const std::byte> bytes);

  /// Makes the file durable under its name. REQUIRES: all announced bytes were written.
  Result<WrittenFile> commit();

 private:
  SafetensorsWriter(AtomicFile file, std::uint64_t due_bytes)
      : file_(std::move(file)), due_bytes_(due_bytes) {}
  Status append(std::span<const std::byte> bytes);

  AtomicFile file_;
  StreamingDigest digest_;
  std::uint64_t due_bytes_;  ///< Bytes of tensors still to be written.
};

}  // namespace train::storage
