#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/files/input_file.hpp"

namespace train::storage {

using TensorMetadata = std::map<std::string, std::string>;

struct TensorEntry {
  std::string name;
  std::string dtype;  ///< "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< Bytes from the start of the data section.
  std::uint64_t end = 0;
};

/// Safetensors file whose header passed every check (ST-3): for any bytes, parse() returns an error
/// or a table whose entries lie inside the file, cover it exactly once and fit their shapes. Memory
/// is proportional to the header, which is limited (safetensors_header.hpp). Tensor data stays on
/// disk.
class SafetensorsFile {
 public:
  /// Errors: those of InputFile::open; a malformed file (failure; names file and reason). Blocks.
  static Result<SafetensorsFile> open(const std::filesystem::path& path,
                                      Links links = Links::follow);
  /// `malformed`, if given, is set if the error is in the file's bytes or size, not in reading
  /// them.
  static Result<SafetensorsFile> parse(InputFile file, bool* malformed = nullptr);

  /// In the order of their bytes in the file.
  [[nodiscard]] std::span<const TensorEntry> entries() const { return entries_; }
  [[nodiscard]] const TensorMetadata& metadata() const { return metadata_; }
  /// nullptr if no tensor has that name.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;

  /// Fills `out` with bytes of a tensor, from its byte `offset` on. Blocks. REQUIRES: an entry of
  /// this file with enough bytes. Errors: those of InputFile::read.
  Status read(const TensorEntry& entry, std::uint64_t offset, std::span<std::byte> out) const;

  /// InputFile::expect_read() of such bytes.
  void expect_read(const TensorEntry& entry, std::uint64_t offset, std::uint64_t size_bytes) const {
    file_.expect_read(data_start_ + entry.begin + offset, size_bytes);
  }

  [[nodiscard]] const InputFile& file() const { return file_; }
  /// Bytes before the tensors.
  [[nodiscard]] std::uint64_t data_start() const { return data_start_; }

 private:
  explicit SafetensorsFile(InputFile file) : file_(std::move(file)) {}
  Status read_table(std::size_t header_bytes, bool& malformed);

  InputFile file_;
  std::uint64_t data_start_ = 0;
  std::vector<TensorEntry> entries_;
  std::vector<std::uint32_t> by_name_;  ///< Indices into entries_, sorted by name.
  TensorMetadata metadata_;
};

}  // namespace train::storage
