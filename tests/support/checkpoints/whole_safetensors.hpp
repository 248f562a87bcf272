#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "storage/safetensors.hpp"
#include "storage/safetensors_writer.hpp"

// Safetensors files whose tensors are all in memory.
namespace train::test {

/// Tensor to write, row-major. Borrows `bytes`.
struct TensorBytes {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::string dtype = "F32";
};

/// Writes `path` with the production writer, each tensor in one piece.
inline Result<storage::WrittenFile> write_safetensors(
    const std::filesystem::path& path, std::span<const TensorBytes> tensors,
    const storage::TensorMetadata& metadata = {}) {
  std::vector<storage::TensorHeading> headings;
  for (const TensorBytes& tensor : tensors) {
    headings.push_back({tensor.name, tensor.shape, tensor.dtype});
  }
  auto writer = storage::SafetensorsWriter::create(path, headings, metadata);
  TRAIN_RETURN_IF_ERROR(writer);
  for (const TensorBytes& tensor : tensors) {
    TRAIN_RETURN_IF_ERROR(writer->write(tensor.bytes));
  }
  return writer->commit();
}

/// Reads all bytes of a tensor.
inline Result<std::vector<std::byte>> read_all(const storage::SafetensorsFile& file,
                                               const storage::TensorEntry& entry) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.end - entry.begin));
  TRAIN_RETURN_IF_ERROR(file.read(entry, 0, bytes));
  return bytes;
}

/// Tensor names of a readable file, in order.
inline std::vector<std::string> stored_names(const std::filesystem::path& path) {
  const auto file = storage::SafetensorsFile::open(path);
  REQUIRE(file);
  std::vector<std::string> names;
  for (const storage::TensorEntry& entry : file->entries()) {
    names.push_back(entry.name);
  }
  return names;
}

/// Bytes of an existing tensor.
inline std::vector<std::byte> stored_bytes(const std::filesystem::path& path,
                                           const std::string& name) {
  const auto file = storage::SafetensorsFile::open(path);
  REQUIRE(file);
  const storage::TensorEntry* entry = file->find(name);
  REQUIRE(entry != nullptr);
  auto bytes = read_all(*file, *entry);
  REQUIRE(bytes);
  return std::move(bytes).value();
}

/// Elements of an existing fp32 tensor.
inline std::vector<float> stored_floats(const std::filesystem::path& path,
                                        const std::string& name) {
  const std::vector<std::byte> bytes = stored_bytes(path, name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace train::test
