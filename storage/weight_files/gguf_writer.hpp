#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/weight_files/gguf_blocks.hpp"

namespace train::storage {

/// Value of a metadata key with the type that it has in the file: readers of GGUF files ask for
/// one.
using GgufFieldValue = std::variant<bool, std::uint16_t, std::uint32_t, std::int32_t, float,
                                    std::string, std::vector<bool>, std::vector<std::int32_t>,
                                    std::vector<float>, std::vector<std::string>>;

struct GgufField {
  std::string key;
  GgufFieldValue value;
};

/// Tensor whose bytes are still to be written.
struct GgufHeading {
  std::string name;
  std::vector<std::int64_t> shape;  ///< Row-major as in PyTorch.
  const GgufType* type = nullptr;
};

/// Bytes of the tensor in a file. REQUIRES: rows of whole blocks.
[[nodiscard]] std::uint64_t gguf_size_bytes(const GgufHeading& tensor);

/// Writes a GGUF file of version 3, tensor by tensor, in pieces of any size. Atomic as AtomicFile
/// (ST-1): without commit() nothing remains. Threading: one owner. Every call blocks on the disk.
class GgufWriter {
 public:
  /// Writes metadata, in their order, and the table of tensors, each at a multiple of 32 bytes.
  /// REQUIRES: keys and names are distinct; rows of whole blocks. Errors: as AtomicFile.
  static Result<GgufWriter> create(const std::filesystem::path& path,
                                   std::span<const GgufField> metadata,
                                   std::span<const GgufHeading> tensors);

  /// Appends tensor bytes, in the order of the headings; a piece belongs to one tensor.
  /// REQUIRES: no more than the headings announce. Errors: as AtomicFile.
  Status write(std::span<const std::byte> bytes);

  /// Makes the file durable under its name. REQUIRES: all announced bytes were written.
  Status commit();

 private:
  GgufWriter(AtomicFile file, std::vector<std::uint64_t> due)
      : file_(std::move(file)), due_(std::move(due)) {}
  Status finish_tensors();

  AtomicFile file_;
  std::vector<std::uint64_t> due_;  ///< Bytes of each tensor still to be written.
  std::size_t tensor_ = 0;
  std::uint64_t written_ = 0;  ///< Bytes of the tensor.
};

}  // namespace train::storage
