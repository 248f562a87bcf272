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
#include "storage/safetensors.hpp"

namespace train::storage {

/// The tensors of a published model: `model.safetensors`, or those of the shards that
/// `model.safetensors.index.json` names. The index says which files there are, and which of two has
/// a tensor that is in both; what it lists and they lack is remembered, for whoever needs it.
/// Threading: reading from any number of threads. Everything blocks on the disk.
class WeightDirectory {
 public:
  /// `path`: such a directory, or one safetensors file.
  /// Errors (user, one line with the file): neither is there (the line says what is, and what to do
  /// with it); an index that is no index, that names a file elsewhere or one that is missing; a
  /// tensor in two files that the index does not place; a file that is cut short or damaged. Those
  /// of reading.
  static Result<WeightDirectory> open(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// By name, rising.
  [[nodiscard]] std::vector<std::string> names() const;
  /// nullptr if there is none of that name.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;
  [[nodiscard]] std::uint64_t tensor_bytes() const;
  /// Tensors that the index lists and no file holds, and the file that each should be in.
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& absent() const {
    return absent_;
  }

  /// Tensors that are in a second file, which the index does not mean.
  [[nodiscard]] const std::vector<std::string>& doubled() const { return doubled_; }

  /// Fills `out` with elements of a tensor of F32, BF16 or F16 from `first` on, exactly, through a
  /// buffer of at most 256 KiB. REQUIRES: the tensor is there and has so many.
  /// Errors: another type (user, names it), those of SafetensorsFile::read.
  Status read_floats(std::string_view name, std::uint64_t first, std::span<float> out) const;

 private:
  struct Location {
    std::size_t file = 0;
    const TensorEntry* entry = nullptr;
  };
  explicit WeightDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  using Places = std::map<std::string, std::string>;
  /// `places`: the name of the file that each tensor should be in.
  Status add_file(const std::filesystem::path& file, const Places& places);
  Status read_index(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Location, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> absent_;
  std::vector<std::string> doubled_;
};

/// Why a directory that holds an adapter of PEFT's alone is no model, and what to do with it.
[[nodiscard]] std::string adapter_alone(const std::filesystem::path& path);

}  // namespace train::storage
