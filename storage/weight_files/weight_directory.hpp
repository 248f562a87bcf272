#pragma once

#include <array>
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
#include "storage/weight_files/quantized_tensor.hpp"

namespace train::storage {

/// Tensors of a published model: `model.safetensors`, or the shards that
/// `model.safetensors.index.json` names. The index gives the files, and which of two holds a tensor
/// that is in both; tensors it lists and the files lack are remembered. Weights in a quantised form
/// that is read (QuantizedTensor) are listed as what they stand for, in place of their numbers and
/// scales. Threading: reading from any number of threads. Everything blocks on the disk.
class WeightDirectory {
 public:
  /// `path`: such a directory, or one safetensors file. Errors (user, one line with the file):
  /// neither exists (the line says what does, and what to do with it); an invalid index, one that
  /// names a file elsewhere or a missing one; a tensor in two files that the index does not assign;
  /// a truncated or damaged file. Read errors.
  static Result<WeightDirectory> open(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Sorted by name.
  [[nodiscard]] std::vector<std::string> names() const;
  /// nullptr if no tensor has that name.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;
  [[nodiscard]] std::uint64_t tensor_bytes() const;
  /// Tensors that the index lists but no file holds, with the file that each should be in.
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& absent() const {
    return absent_;
  }

  /// Tensors that are also in a second file, which the index does not assign them to.
  [[nodiscard]] const std::vector<std::string>& doubled() const { return doubled_; }

  /// Weights in a quantised form.
  [[nodiscard]] std::size_t quantized() const { return quantized_.size(); }
  /// Why elements of a tensor cannot be read; empty: they can. REQUIRES: it exists.
  [[nodiscard]] std::string unreadable(std::string_view name) const;

  /// Fills `out` with elements of a tensor of F32, BF16 or F16 from `first` on, exactly, through a
  /// buffer of at most 256 KiB; or as read_quantized() does. REQUIRES: the tensor exists and has
  /// enough elements. Errors: unreadable() (user); those of SafetensorsFile::read.
  Status read_floats(std::string_view name, std::uint64_t first, std::span<float> out) const;

 private:
  struct Location {
    std::size_t file = 0;
    const TensorEntry* entry = nullptr;
  };
  using Tensors = std::map<std::string, Location, std::less<>>;
  explicit WeightDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  using Places = std::map<std::string, std::string>;
  /// `places`: name of the file that each tensor should be in.
  Status add_file(const std::filesystem::path& file, const Places& places);
  Status read_index(const std::filesystem::path& index);
  Status find_quantized();
  /// Numbers and scales, by the names in the files.
  [[nodiscard]] const TensorEntry* find_stored(std::string_view name) const;
  Status read_stored(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const;

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  Tensors tensors_;
  Tensors parts_;  ///< Numbers and scales of what is quantised.
  std::map<std::string, QuantizedTensor, std::less<>> quantized_;
  std::map<std::string, std::string, std::less<>> unreadable_;  ///< Reasons.
  std::map<std::string, std::string, std::less<>> absent_;
  std::vector<std::string> doubled_;
};

/// Explains why a directory that holds only a PEFT adapter is not a model, and what to do with it.
[[nodiscard]] std::string adapter_alone(const std::filesystem::path& path);

/// For a path that does not exist: "; " and how a published model gets there. For "owner/name": how
/// to fetch that repository of a model hub.
[[nodiscard]] std::string how_to_fetch(std::string_view name);

}  // namespace train::storage
