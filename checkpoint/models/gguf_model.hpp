#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/model/spec.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::checkpoint {

/// A model in a GGUF file, as the published one that it was made of: its config.json made again
/// from the metadata, and its weights under their published names, dequantized, in the published
/// order of rows.
///
/// Llama's queries and keys lie in GGUF files as interleaved pairs and come back by halves; Gemma's
/// gains are stored as 1 + w and come back as w.
/// Threading: reads from several threads. Everything blocks on the disk.
class GgufModel {
 public:
  /// Errors: (user) an architecture that is not known (the line lists those that are), metadata
  /// that is missing, frequencies of ropes in a tensor; those of GgufFile::open.
  static Result<GgufModel> open(const std::filesystem::path& path);

  [[nodiscard]] const std::string& config_text() const { return config_text_; }
  [[nodiscard]] const storage::GgufFile& file() const { return file_; }
  /// Errors (user): a tensor is missing, misshapen or belongs to nothing; names it.
  [[nodiscard]] Status check(const engine::ModelSpec& model) const;
  /// All elements of a parameter. REQUIRES: check() passed. Errors: those of GgufFile::read_fp32.
  Status read(const std::string& parameter, std::span<float> out) const;

 private:
  explicit GgufModel(storage::GgufFile file) : file_(std::move(file)) {}
  Status read_config(const std::string& architecture);
  [[nodiscard]] std::optional<std::string> name_in_file(const std::string& parameter) const;
  /// Heads of a matrix whose rows are interleaved pairs; 0 of others.
  [[nodiscard]] std::int64_t interleaved_heads(const std::string& parameter) const;

  storage::GgufFile file_;
  std::string config_text_;
  bool interleaved_ = false;
  bool gains_plus_one_ = false;
  std::int64_t heads_ = 0, kv_heads_ = 0;
};

}  // namespace train::checkpoint
