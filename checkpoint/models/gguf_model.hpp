#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/models/gguf_architectures.hpp"
#include "engine/model/spec.hpp"
#include "storage/weight_files/element_types.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::checkpoint {

/// A model in a GGUF file, as the published one that it was made of: its config.json made again
/// from the metadata, and its weights under their published names, dequantized, in the published
/// order of rows.
///
/// Tensors that a family's files hold otherwise come back as published (GgufLayout): Llama's
/// queries and keys in interleaved pairs, Gemma's gains of 1 + w, GPT-2's transposed matrices.
/// Threading: reads from several threads. Everything blocks on the disk.
class GgufModel {
 public:
  /// Errors: (user) an architecture that is not known (the line lists those that are), one of
  /// several files of a model, those of gguf_config(); those of GgufFile::open.
  static Result<GgufModel> open(const std::filesystem::path& path);

  [[nodiscard]] const std::string& config_text() const { return config_text_; }
  [[nodiscard]] const storage::GgufFile& file() const { return file_; }
  /// A type that loses nothing of the file's elements; of a quantised file bfloat16.
  [[nodiscard]] storage::WeightType type() const { return type_; }
  /// Errors (user): a tensor is missing, misshapen or belongs to nothing; names it.
  [[nodiscard]] Status check(const engine::ModelSpec& model) const;
  /// All elements of a parameter. REQUIRES: check() passed. Errors: those of GgufFile::read_fp32.
  Status read(const std::string& parameter, std::span<float> out) const;

 private:
  explicit GgufModel(storage::GgufFile file) : file_(std::move(file)) {}
  /// The shape that a published parameter has in the file.
  [[nodiscard]] static std::vector<std::int64_t> shape_in_file(const engine::Parameter& parameter,
                                                               GgufLayout layout);

  storage::GgufFile file_;
  const GgufArchitecture* architecture_ = nullptr;
  std::string config_text_;
  storage::WeightType type_ = storage::WeightType::bf16;
  std::int64_t heads_ = 0, kv_heads_ = 0;
};

}  // namespace train::checkpoint
