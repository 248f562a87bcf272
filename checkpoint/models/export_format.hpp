#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "checkpoint/models/export.hpp"

namespace train::checkpoint {

/// A file of tensors while it is written, in the order of its table. Without commit() nothing
/// remains of it.
class ExportFile {
 public:
  virtual ~ExportFile() = default;
  /// Appends bytes of tensors; a piece belongs to one. Errors: as AtomicFile.
  virtual Status write(std::span<const std::byte> bytes) = 0;
  virtual Status commit() = 0;
};

/// Tensors of a file that was written.
class WrittenTensors {
 public:
  virtual ~WrittenTensors() = default;
  [[nodiscard]] virtual std::size_t count() const = 0;
  /// True if the file has the tensor with its name, shape and type.
  [[nodiscard]] virtual bool has(const ExportTensor& tensor) const = 0;
  /// Fills `out` with bytes of the tensor from `offset` on. REQUIRES: has(tensor).
  virtual Status read(const ExportTensor& tensor, std::uint64_t offset,
                      std::span<std::byte> out) const = 0;
};

/// One file of an export.
struct ExportPlace {
  std::filesystem::path path;
  std::span<const ExportTensor> tensors;
  std::size_t index = 0, count = 1;  ///< Its place among all files.
  std::size_t all_tensors = 0;       ///< Tensors of all files.
};

/// How tensors are stored in a kind of files. Plain data; may be shared.
class ExportFormat {
 public:
  using Take = std::function<Status(std::span<const std::byte>)>;

  virtual ~ExportFormat() = default;
  [[nodiscard]] virtual std::string_view extension() const = 0;  ///< ".safetensors"
  /// Errors (user): a tensor's shape does not allow its type.
  [[nodiscard]] virtual Status check(const ExportTensor& tensor) const = 0;
  [[nodiscard]] virtual std::uint64_t stored_bytes(const ExportTensor& tensor) const = 0;
  /// Writes all that goes before the tensors' bytes. Errors: as AtomicFile.
  virtual Result<std::unique_ptr<ExportFile>> create(const ExportPlace& place) const = 0;
  virtual Result<std::unique_ptr<WrittenTensors>> open(const std::filesystem::path& path) const = 0;
  /// Calls `take` with a tensor's bytes, in order, piece by piece. Errors: a value that is too
  /// large for the type (user); those of `take`.
  virtual Status encode(const ExportTensor& tensor, std::span<const float> elements,
                        const Take& take) const = 0;
  /// Name and content of a file that says which tensor is in which of several; none by default.
  struct Index {
    std::string name, text;
  };
  [[nodiscard]] virtual Index index(const std::string& /*base*/,
                                    std::span<const ExportPlace> /*places*/,
                                    std::uint64_t /*tensor_bytes*/) const {
    return {};
  }
};

}  // namespace train::checkpoint
