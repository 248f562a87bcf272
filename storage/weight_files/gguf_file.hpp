#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "storage/files/input_file.hpp"
#include "storage/weight_files/gguf_blocks.hpp"

namespace train::storage {

/// Metadata value of a GGUF file. All integer sizes are widened, floats too.
using GgufValue =
    std::variant<bool, std::uint64_t, std::int64_t, double, std::string, std::vector<bool>,
                 std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>,
                 std::vector<std::string>>;
using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

/// Largest metadata and tensor table accepted, so that a hostile file costs neither time nor
/// memory.
inline constexpr std::uint64_t kGgufHeaderLimitBytes = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kGgufKeyLimit = 65'536;
inline constexpr std::uint64_t kGgufTensorLimit = 250'000;
/// Total of all metadata arrays.
inline constexpr std::uint64_t kGgufElementLimit = 8'000'000;

/// Tensor of a GgufFile.
struct GgufEntry {
  std::string name = {};
  std::vector<std::int64_t> shape = {};  ///< Row-major as in PyTorch: the file's order reversed.
  GgufType type = {};
  std::uint64_t elements_count = 0;
  std::uint64_t begin = 0;  ///< Byte offset in the file.
  std::uint64_t size_bytes = 0;
};

/// GGUF file of version 2 or 3, little-endian, whose table passed every check: for any bytes,
/// open() returns an error or a table whose tensors lie inside the file, at multiples of its
/// alignment, without overlap, and fit their shapes. Memory is proportional to metadata and table.
/// Tensor data stays on disk.
///
/// Threading: reads may be made from several threads. All calls block on the disk.
class GgufFile {
 public:
  /// Errors: those of InputFile::open; a malformed file, another version, an unknown type (failure;
  /// names file and reason).
  static Result<GgufFile> open(const std::filesystem::path& path);

  [[nodiscard]] std::uint32_t version() const { return version_; }
  [[nodiscard]] const GgufMetadata& metadata() const { return metadata_; }
  /// Value of `key`, if it exists with that type.
  template <class T>
  [[nodiscard]] const T* value_of(std::string_view key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? nullptr : std::get_if<T>(&found->second);
  }
  /// Value of an integer key, signed or not, if not negative.
  [[nodiscard]] std::optional<std::uint64_t> count_of(std::string_view key) const;

  /// Sorted by name.
  [[nodiscard]] std::span<const GgufEntry> entries() const { return entries_; }
  /// nullptr if no tensor has that name.
  [[nodiscard]] const GgufEntry* find(std::string_view name) const;

  /// Fills `out` with elements from `first_element` on, dequantized block by block. Uses at most 1
  /// MiB. REQUIRES: an entry of this file with enough elements. Errors: an unreadable type (user;
  /// names tensor, file and the readable types); those of InputFile::read.
  Status read_fp32(const GgufEntry& entry, std::uint64_t first_element, std::span<float> out) const;

  [[nodiscard]] const InputFile& file() const { return file_; }

 private:
  explicit GgufFile(InputFile file) : file_(std::move(file)) {}

  InputFile file_;
  std::uint32_t version_ = 0;
  GgufMetadata metadata_;
  std::vector<GgufEntry> entries_;
};

}  // namespace train::storage
